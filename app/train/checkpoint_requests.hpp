/// \file
/// Requests for a checkpoint by signals.
#pragma once

#include <cstdint>

namespace lockstep::app {

/// The requests that one rank has received. A signal may go to one rank or, through the launcher, to all ranks, which
/// receive it in different steps. The first rank that receives it requests the checkpoint. A signal that reaches
/// another rank shortly after this checkpoint is an echo of the same request and is ignored, once per checkpoint. Any
/// further signal is a new request, however soon it arrives.
class CheckpointRequests {
 public:
  /// Counts `signals` new signals since the last call. `seconds_since_saved`: age of the last checkpoint.
  void came(std::int64_t signals, double seconds_since_saved) noexcept {
    constexpr double kSecondsOfAnEcho = 1;
    if (signals > 0 && echo_expected_ && seconds_since_saved < kSecondsOfAnEcho) {
      echo_expected_ = false;
      --signals;
    }
    if (signals > 0) wanted_ = true;
  }
  /// True if this rank wants a checkpoint after the next step.
  bool wanted() const noexcept { return wanted_; }
  /// Call on every rank after a checkpoint that any rank has requested.
  void answered() noexcept {
    echo_expected_ = !wanted_;
    wanted_ = false;
  }

 private:
  bool wanted_ = false, echo_expected_ = false;
};

}  // namespace lockstep::app
