/// \file
/// Terms of a benchmark's all-reduce, chosen so that a formula can check every element of the sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::app {

/// No order of elements repeats, which reveals exchanged pieces, and neighbouring ranks contribute different terms,
/// which reveals confused ranks. All partial sums are whole numbers that the type on the wire represents, so sums are
/// exact in any order, even if terms and partial sums are rounded to bfloat16 on the wire: those go up to 256, which
/// 128 ranks reach. With more ranks, each element has terms of every second, third, … rank, beginning with a different
/// one each time, and zeros of the others.
class KnownSums {
 public:
  enum class Wire { fp32, bf16 };
  explicit KnownSums(int ranks, Wire wire = Wire::fp32);

  /// The term of rank `rank` for element `index`, and the sum of all ranks' terms.
  float term(std::size_t index, int rank) const;
  float sum(std::size_t index) const;
  /// Number of elements that differ from the sum. `first`: index of the first.
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
