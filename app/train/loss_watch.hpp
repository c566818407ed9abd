/// \file
/// Detection of divergence from the training loss.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace lockstep::app {

/// Detects divergence while all numbers are still finite. Training diverges if the mean loss of the last kWindow steps
/// is more than twice the lowest mean of any kWindow consecutive steps so far, and if the difference also exceeds a
/// tenth of the mean of the first kWindow steps. The second condition ignores the noise of a small loss.
class LossWatch {
 public:
  static constexpr std::int64_t kWindow = 20;
  /// Adds the loss of the next step.
  void saw(double loss) {
    losses_[static_cast<std::size_t>(steps_ % kWindow)] = loss;
    if (++steps_ < kWindow) return;
    mean_ = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(kWindow);
    if (steps_ == kWindow) best_ = first_ = mean_;
    best_ = std::min(best_, mean_);
  }
  /// True if training diverges.
  bool leaps() const noexcept { return mean_ > 2 * best_ && mean_ - best_ > first_ / 10; }
  double mean() const noexcept { return mean_; }  ///< mean over the last window
  double best() const noexcept { return best_; }  ///< lowest mean of a window so far

 private:
  std::int64_t steps_ = 0;
  std::array<double, kWindow> losses_{};
  double mean_ = 0, best_ = 0, first_ = 0;
};

}  // namespace lockstep::app
