/// \file
/// Terms for a benchmark's all-reduce whose sums are known: a formula checks every element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::app {

/// The sequence of terms does not repeat, so exchanged pieces are detected. Neighbouring ranks contribute different
/// terms, so exchanged ranks are detected. All partial sums are whole numbers that the wire format represents exactly,
/// so sums are exact in any order. bfloat16 represents whole numbers up to 256; 128 ranks reach this limit. With more
/// ranks, only every second, third, … rank contributes to an element and the others add zeros; the first contributing
/// rank differs from element to element.
class KnownSums {
 public:
  enum class Wire { fp32, bf16 };
  explicit KnownSums(int ranks, Wire wire = Wire::fp32);

  /// The term of `rank` for element `index`, and the sum of all ranks' terms.
  float term(std::size_t index, int rank) const;
  float sum(std::size_t index) const;
  /// Number of elements that differ from the known sums. `first`: index of the first element of `sums`.
  std::size_t count_wrong(std::span<const float> sums, std::size_t first = 0) const;

 private:
  struct Members {
    std::uint32_t first, count;  ///< `count` ranks: first, first + stride_, …
  };
  Members members(std::size_t index) const;
  std::uint32_t base(std::size_t index) const;

  std::uint32_t ranks_, stride_, offsets_, limit_;
};

}  // namespace lockstep::app
