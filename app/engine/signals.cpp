#include "app/engine/signals.hpp"

#include <array>
#include <atomic>
#include <csignal>

#include <unistd.h>

namespace lockstep::app {

namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, what shells expect

// A signal handler can reach nothing but static storage: the one exception to "no global state".
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (signal == SIGINT && received.load(std::memory_order_relaxed) == SIGINT) _exit(kInterruptedExitCode);
  received.store(signal, std::memory_order_relaxed);
}

}  // namespace

StopSignals::StopSignals() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool StopSignals::stop_requested() const noexcept { return received.load(std::memory_order_relaxed) != 0; }

const char* StopSignals::name() const noexcept {
  switch (received.load(std::memory_order_relaxed)) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "";
  }
}

}  // namespace lockstep::app
