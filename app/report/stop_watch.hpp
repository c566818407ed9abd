/// \file
/// A stop watch.
#pragma once

#include <chrono>

namespace lockstep::app {

/// Measures seconds since construction or since the last lap.
class StopWatch {
 public:
  double lap() noexcept {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }
  double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::app
