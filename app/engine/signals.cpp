#include "app/engine/signals.hpp"

#include <array>
#include <atomic>
#include <csignal>

#include <unistd.h>

#include "comm/failure/ending_signal.hpp"

namespace lockstep::app {

namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, the value that shells expect

// A signal handler can access only static storage: the one exception to "no global state".
std::atomic<int> first_signal{0};
std::atomic<bool> interrupted{false};
std::atomic<int> checkpoint_requests{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (signal == SIGUSR2) {
    checkpoint_requests.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (signal == SIGINT && interrupted.exchange(true, std::memory_order_relaxed)) {
    comm::note_ending_signal(signal);
    _exit(kInterruptedExitCode);
  }
  int none = 0;
  first_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed);
}

/// Reports the cause to the peers before it ends this process.
void end_by(int signal) {
  comm::note_ending_signal(signal);
  std::raise(signal);  // SA_RESETHAND has restored the default action, which ends the process when this handler returns
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void StopSignals::handle_by(void (*handler)(int), int flags) const {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    if (signal != SIGHUP || minds_hangup_) sigaction(signal, &action, nullptr);
  }
}

StopSignals::StopSignals() : minds_hangup_(!is_ignored(SIGHUP)) {
  first_signal = 0;
  interrupted = false;
  checkpoint_requests = 0;
  note();
}

void StopSignals::note() {
  handle_by(on_signal, SA_RESTART);
  // The parent process may have left them blocked, and then the job could not be stopped.
  sigset_t stopping;
  sigemptyset(&stopping);
  for (const int signal : kSignals) sigaddset(&stopping, signal);
  pthread_sigmask(SIG_UNBLOCK, &stopping, nullptr);
}

void StopSignals::release() {
  handle_by(end_by, SA_RESETHAND);
  if (const int noted = first_signal; noted != 0) std::raise(noted);
}

void StopSignals::ignore() { handle_by(SIG_IGN, SA_RESTART); }

bool StopSignals::stop_requested() const noexcept { return first_signal.load(std::memory_order_relaxed) != 0; }

int StopSignals::take_checkpoint_requests() noexcept {
  return checkpoint_requests.exchange(0, std::memory_order_relaxed);
}

std::string StopSignals::name() const {
  const int signal = first_signal.load(std::memory_order_relaxed);
  return signal == 0 ? "" : comm::signal_name(signal);
}

}  // namespace lockstep::app
