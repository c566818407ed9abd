#include "comm/session/start_guard.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include "comm/session/deadline.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/network_interfaces.hpp"
#include "comm/session/peers.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kInclude = "OMPI_MCA_btl_tcp_if_include";

/// True if `item`, "eth0" or "10.1.0.0/16", is an interface here, or in a format that only Open MPI can read.
bool is_here(const std::string& item, const std::vector<std::string>& names) {
  const std::size_t slash = item.find('/');
  if (slash == std::string::npos) return std::find(names.begin(), names.end(), item) != names.end();
  in_addr network{};
  const int bits = std::atoi(item.c_str() + slash + 1);
  if (inet_pton(AF_INET, item.substr(0, slash).c_str(), &network) != 1 || bits < 0 || bits > 32) return true;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return true;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const std::uint32_t address = ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr);
    if ((address & mask) == (ntohl(network.s_addr) & mask)) return true;
  }
  return false;
}

/// A launcher that spares survivors ends them seconds after rank 0 has ended.
constexpr double kUntilEnded = 10;

/// Static, because a signal handler can reach only static storage; atomic, because it may run in any thread.
std::atomic<bool> continued = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

InterfaceLists InterfaceLists::from_environment() {
  const auto value_of = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return {.include = value_of(kInclude), .exclude = value_of("OMPI_MCA_btl_tcp_if_exclude")};
}

std::string network_hint(const InterfaceLists& lists) {
  const std::vector<std::string> names = host_interfaces();
  std::string hint = names.empty() ? "no network interface with an address runs on this host"
                                   : fmt::format("this host has the interfaces {}", fmt::join(names, ", "));
  const std::string mpi = mpi_library_version();
  if (interface_variable(mpi) != kInclude) {
    return hint + fmt::format("; {} names those that {} may use", interface_variable(mpi), mpi);
  }
  const std::string list = lists.include.value_or("");
  if (list.empty()) {
    const std::string suspects = suspect_interfaces(interface_addresses(), "", lists.exclude.value_or(""));
    return hint + (suspects.empty() ? fmt::format("; {} names those that MPI may use", kInclude) : "; " + suspects);
  }
  bool any = false;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string item(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    any = any || is_here(item, names);
  }
  return hint + fmt::format(", and {}={}{}", kInclude, list, any ? "" : " names none of them");
}

StartGuard::StartGuard(const char* call, double seconds)
    : rank_(launched_rank().value_or(0)),
      lists_(InterfaceLists::from_environment()),
      folders_(start_folders()),
      turn_(precedence_seconds(rank_ == 0, rank_) + (rank_ != 0 && launcher_spares_survivors() ? kUntilEnded : 0)),
      before_(std::signal(SIGCONT, [](int) { continued = true; })),
      thread_([this, call, seconds](const std::stop_token& stop) { watch(stop, call, seconds); }) {}

void StartGuard::watch(const std::stop_token& stop, const char* call, double seconds) {
  // Patience does not charge the time in which this process was stopped. After SIGCONT this process is most likely
  // about to be ended, because SIGCONT is the first signal that Open MPI's daemons send then: give the launcher time.
  std::optional<Patience> patience(seconds + turn_);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (wake_.wait_for(lock, stop, std::chrono::milliseconds(100), [&] { return stop.stop_requested(); })) return;
    if (continued.exchange(false)) {
      patience.emplace(std::max(seconds, 5.0));
    }
    if (patience->exhausted(false)) break;
  }
  const std::string obstacle = obstacle_in(folders_);
  const std::string reason = obstacle.empty()
                                 ? "A rank is stopped, has ended or waits for a file system, a host is cut off, or the "
                                   "hosts do not reach each other: " +
                                       network_hint(lists_)
                                 : "On this host " + obstacle;
  write_stderr(
      fmt::format("lockstep: error on rank {} (host {}, pid {}): {} has not returned for {} s. {}. Ending the "
                  "job.\n",
                  rank_, host_name(), getpid(), call, seconds_text(seconds), reason));
  _exit(1);
}

StartGuard::~StartGuard() {
  thread_.request_stop();
  thread_.join();
  std::signal(SIGCONT, before_);
}

}  // namespace lockstep::comm
