/// \file
/// Requests for a checkpoint that reach the ranks by signals.
#pragma once

#include <cstdint>

namespace lockstep::app {

/// What one rank knows of them. A signal may go to one rank or, through the launcher, to all, which see it in different
/// steps: the first to see it brings the checkpoint, and the others' is the echo of a request that has been answered.
/// Any further signal is a request of its own, however soon it comes.
class CheckpointRequests {
 public:
  /// So many signals have come since the last call, the last checkpoint was so long ago.
  void came(std::int64_t signals, double seconds_since_saved) noexcept {
    constexpr double kSecondsOfAnEcho = 1;
    if (signals > 0 && echo_expected_ && seconds_since_saved < kSecondsOfAnEcho) {
      echo_expected_ = false;
      --signals;
    }
    if (signals > 0) wanted_ = true;
  }
  /// This rank wants a checkpoint after the next step.
  bool wanted() const noexcept { return wanted_; }
  /// Some rank's request has brought one.
  void answered() noexcept {
    echo_expected_ = !wanted_;
    wanted_ = false;
  }

 private:
  bool wanted_ = false, echo_expected_ = false;
};

}  // namespace lockstep::app
