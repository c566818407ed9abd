#include "comm/network_interfaces.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "comm/reduction.hpp"

namespace lockstep::comm {
namespace {

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::string_view name = item.substr(0, item.find(':'));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> host_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::find(names.begin(), names.end(), entry->ifa_name) == names.end()) names.emplace_back(entry->ifa_name);
  }
  return names;
}

std::string interface_list_error(std::string_view list, std::span<const std::string> interfaces,
                                 std::string_view host) {
  if (list.size() <= 1) return "";
  std::string_view rest = list;
  const bool excludes = rest.starts_with('^');
  if (excludes) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  const std::vector<std::string_view> names = names_in(rest);
  const bool usable = std::any_of(interfaces.begin(), interfaces.end(), [&](const std::string& interface) {
    // An empty list names everything.
    const bool named = names.empty() || std::any_of(names.begin(), names.end(), [&](std::string_view name) {
                         return exact ? interface == name : interface.starts_with(name);
                       });
    return named != excludes;
  });
  if (usable) return "";
  const std::string there = interfaces.empty()
                                ? fmt::format("{} has no running interface with an IP address at all", host)
                                : fmt::format("the interfaces of {} are {}", host, fmt::join(interfaces, ", "));
  return excludes
             ? fmt::format("NCCL_SOCKET_IFNAME={} excludes every network interface: {}. Exclude fewer, or unset it",
                           list, there)
             : fmt::format(
                   "NCCL_SOCKET_IFNAME={} names no network interface that is there{}: {}. Name one of "
                   "them, or unset it",
                   list, exact ? " (= asks for whole names)" : "", there);
}

std::string nccl_environment_error() {
  const char* const list = std::getenv("NCCL_SOCKET_IFNAME");
  if (list == nullptr) return "";
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return interface_list_error(list, host_interfaces(), host[0] == '\0' ? "this host" : host);
}

}  // namespace lockstep::comm
