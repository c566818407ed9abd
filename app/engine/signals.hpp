/// \file
/// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask a job to stop with a checkpoint; a second SIGINT ends it at once.
#pragma once

namespace lockstep::app {

/// Handlers are installed by the constructor and taken back by the destructor. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool stop_requested() const noexcept;
  /// "SIGUSR1", or "" when none came.
  const char* name() const noexcept;
};

}  // namespace lockstep::app
