/// \file
/// Mean, deviation and range of numbers that arrive in blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

namespace lockstep::io {

/// Count, mean and sum of squared deviations, merged block by block (Chan, Golub, LeVeque 1979), and the range.
class RunningStatistics {
 public:
  /// Adds numbers. Returns the position of the first NaN or infinity; nullopt: none.
  template <class Element>
  std::optional<std::size_t> add(std::span<const Element> block) {
    double sum = 0;
    Element low = block[0];
    Element high = block[0];
    for (const Element value : block) {
      sum += static_cast<double>(value);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (!std::isfinite(sum)) {
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (!std::isfinite(static_cast<double>(block[i]))) return i;
      }
    }
    RunningStatistics of_block;
    of_block.count_ = static_cast<double>(block.size());
    of_block.mean_ = sum / of_block.count_;
    for (const Element value : block) {
      const double distance = static_cast<double>(value) - of_block.mean_;
      of_block.squares_ += distance * distance;
    }
    of_block.low_ = static_cast<double>(low);
    of_block.high_ = static_cast<double>(high);
    add(of_block);
    return std::nullopt;
  }
  /// Adds the statistics of other numbers.
  void add(const RunningStatistics& other) {
    if (other.count_ == 0) return;
    const double delta = other.mean_ - mean_, total = count_ + other.count_;
    mean_ += delta * other.count_ / total;
    squares_ += other.squares_ + delta * delta * count_ * other.count_ / total;
    count_ = total;
    low_ = std::min(low_, other.low_);
    high_ = std::max(high_, other.high_);
  }
  double mean() const noexcept { return mean_; }
  double standard_deviation() const noexcept { return std::sqrt(squares_ / count_); }
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

}  // namespace lockstep::io
