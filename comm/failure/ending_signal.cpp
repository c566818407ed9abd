#include "comm/failure/ending_signal.hpp"

#include <array>
#include <atomic>
#include <csignal>

#include <fmt/format.h>

#include "comm/failure/shared_control.hpp"

namespace lockstep::comm {
namespace {

/// One page per communicator of this process. Static, because a signal handler can reach only static storage.
std::array<std::atomic<SharedControl*>, 8> pages{};
static_assert(std::atomic<SharedControl*>::is_always_lock_free);

void replace_one(SharedControl* from, SharedControl* to) noexcept {
  for (auto& page : pages) {
    SharedControl* expected = from;
    if (page.compare_exchange_strong(expected, to)) return;
  }
}

}  // namespace

std::string signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGHUP:
      return "SIGHUP";
    default:
      return fmt::format("signal {}", signal);
  }
}

void show_ending_signal_on(SharedControl& own) noexcept { replace_one(nullptr, &own); }
void forget_ending_signal_on(SharedControl& own) noexcept { replace_one(&own, nullptr); }

void note_ending_signal(int signal) noexcept {
  for (auto& page : pages) {
    if (SharedControl* const own = page.load()) own->ended_by.store(static_cast<std::uint32_t>(signal));
  }
}

}  // namespace lockstep::comm
