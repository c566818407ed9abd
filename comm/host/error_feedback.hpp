/// \file
/// Keeps the rounding errors of a rank's numbers for the next sum of the same numbers (error feedback: Seide et al.
/// 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD").
#pragma once

#include <cstddef>
#include <list>
#include <span>
#include <vector>

namespace lockstep::comm {

class ErrorFeedback {
 public:
  struct Errors {
    std::span<const std::byte> memory;
    std::vector<float> values;
  };

  /// Allocates the errors of all floats in `memory`, initially zero. The result is for remove().
  const Errors* add(std::span<const std::byte> memory);
  void remove(const Errors* errors);
  /// The errors of `data`, element by element; empty if `data` is not in added memory.
  std::span<float> errors_of(std::span<const float> data) noexcept;
  void forget() noexcept;

 private:
  std::list<Errors> all_;
};

}  // namespace lockstep::comm
