/// \file
/// Handles signals. SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal has closed; ignored under nohup) ask a job to
/// stop with a checkpoint; a second SIGINT ends it at once. SIGUSR2 asks for a checkpoint, and the job continues.
#pragma once

#include <string>

namespace lockstep::app {

/// The process's reaction to these signals. `main` owns the only object, from its first line to its last.
class StopSignals {
 public:
  /// Handles signals like note(), with one difference: if nobody acts on a stop request within two seconds, the process
  /// ends with the exit code of a stop. At this point no work needs an orderly end, and reading and planning may take
  /// minutes.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Notes signals from now on. The program must check stop_requested() and stop in order; that may take any time.
  void note();
  /// Restores the default: signals end the process from now on. A signal noted earlier ends it at once.
  void release();
  /// Ignores signals from now on: all work is done, and the exit code must report it.
  void ignore();

  bool stop_requested() const noexcept;
  /// Number of SIGUSR2 since the last call; the system may merge signals that arrive at the same time.
  int take_checkpoint_requests() noexcept;
  /// "SIGUSR1", the first signal that asked to stop; "" if none did.
  std::string name() const;

 private:
  void take();
  void handle_by(void (*handler)(int), int flags) const;

  bool minds_hangup_;  ///< false if the parent process ignores it
};

}  // namespace lockstep::app
