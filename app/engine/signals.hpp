/// \file
/// SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal is gone; nobody minds that under nohup) ask a job to stop with a
/// checkpoint; a second SIGINT ends it at once. SIGUSR2 asks for a checkpoint, and the job goes on.
#pragma once

#include <string>

namespace lockstep::app {

/// What the process does with them. `main` owns the one object, from its first line to its last.
class StopSignals {
 public:
  /// As note().
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From here on they are noted: whoever can stop in order asks stop_requested().
  void note();
  /// From here on they end the process, as they do by default. So does one that was noted before.
  void release();
  /// From here on they change nothing: all work is done, and the exit code is to tell of it.
  void ignore();

  bool stop_requested() const noexcept;
  /// How many SIGUSR2 have come since the last call; of those that come at once, the system may drop some.
  int take_checkpoint_requests() noexcept;
  /// "SIGUSR1", the first that asked to stop; "" when none did.
  std::string name() const;

 private:
  void handle_by(void (*handler)(int), int flags) const;

  bool minds_hangup_;  ///< not where whoever started us ignores it
};

}  // namespace lockstep::app
