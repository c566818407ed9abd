/// \file
/// Requests for a checkpoint by signals.
#pragma once

#include <cstdint>

namespace lockstep::app {

/// One rank's knowledge of the requests. A signal may go to one rank or, through the launcher, to all, which see it in
/// different steps: the first rank that sees it requests the checkpoint, and later arrivals of the same request are
/// echoes that the checkpoint has answered. Any further signal is a request of its own, however soon it arrives.
class CheckpointRequests {
 public:
  /// Notes `signals` new signals since the last call; `seconds_since_saved`: age of the last checkpoint.
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
  /// Call after a checkpoint that any rank has requested.
  void answered() noexcept {
    echo_expected_ = !wanted_;
    wanted_ = false;
  }

 private:
  bool wanted_ = false, echo_expected_ = false;
};

}  // namespace lockstep::app
