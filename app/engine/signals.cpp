#include "app/engine/signals.hpp"

#include <array>
#include <atomic>
#include <csignal>

#include <unistd.h>

#include "app/report/exit_code.hpp"
#include "comm/failure/ending_signal.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::app {

namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, which shells expect
/// Within this time, ranks that can still agree on a stop do so and stop together.
constexpr unsigned kSecondsToBeHeeded = 2;

// A signal handler can access only static storage: this is the one exception to "no global state".
std::atomic<int> first_signal{0};
std::atomic<bool> interrupted{false};
std::atomic<int> checkpoint_requests{0};
std::atomic<bool> begun{false};   ///< true after note() or release(): the alarm has no effect
std::atomic<bool> speaks{false};  ///< true on rank 0, which prints the message for all ranks
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
  const bool first = first_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed);
  if (first && !begun.load(std::memory_order_relaxed)) alarm(kSecondsToBeHeeded);
}

void on_alarm(int /*signal*/) {
  if (begun.load(std::memory_order_relaxed)) return;
  const int signal = first_signal.load(std::memory_order_relaxed);
  comm::note_ending_signal(signal);
  if (speaks.load(std::memory_order_relaxed)) {
    comm::write_stderr("lockstep: stopped on request (");
    comm::write_stderr(comm::signal_name(signal));  // short enough that the string allocates no memory
    comm::write_stderr(") before the first step: there is nothing new to keep, and the same command starts again\n");
  }
  _exit(kExitStoppedEarly);
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
  begun = false;
  speaks = comm::launched_rank().value_or(0) == 0;
  std::signal(SIGALRM, on_alarm);
  take();
}

void StopSignals::note() {
  begun = true;
  take();
}

void StopSignals::take() {
  handle_by(on_signal, SA_RESTART);
  // Unblocks the signals: the parent process may have blocked them, and then the job could not be stopped.
  sigset_t stopping;
  sigemptyset(&stopping);
  for (const int signal : kSignals) sigaddset(&stopping, signal);
  sigaddset(&stopping, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &stopping, nullptr);
}

void StopSignals::release() {
  begun = true;
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
