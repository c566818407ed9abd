/// \file
/// SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal is gone; ignored under nohup) ask a job to stop with a checkpoint;
/// a second SIGINT ends it at once. SIGUSR2 asks for a checkpoint, and the job continues.
#pragma once

#include <string>

namespace lockstep::app {

/// The process's reaction to these signals. `main` owns the only object, from its first line to its last.
class StopSignals {
 public:
  /// As note(), but a request to stop that nobody has heeded after two seconds ends the process, with the exit code of
  /// a stop: nothing is begun yet that would have to be finished, and reading and planning may take minutes.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From here on they are noted, for as long as it takes: whoever can stop in order asks stop_requested().
  void note();
  /// Signals end the process from here on, which is the default. An earlier noted signal does so at once.
  void release();
  /// Signals have no effect from here on: all work is done, and the exit code is to report it.
  void ignore();

  bool stop_requested() const noexcept;
  /// Number of SIGUSR2 since the last call; the system may drop some of several that arrive at once.
  int take_checkpoint_requests() noexcept;
  /// "SIGUSR1", the first signal that asked to stop; "" if none did.
  std::string name() const;

 private:
  void take();
  void handle_by(void (*handler)(int), int flags) const;

  bool minds_hangup_;  ///< false if the parent process ignores it
};

}  // namespace lockstep::app
