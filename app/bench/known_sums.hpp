/// \file
/// What the ranks add in a benchmark's all-reduce, so that every element of the sum can be checked by formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::app {

/// No order of elements repeats, so that exchanged pieces show, and neighbours bring different terms, so that a rank
/// taken for another shows. All partial sums are whole numbers that the type on the wire holds, so sums are exact in
/// any order, also where terms and partial sums are rounded to bfloat16 on their way: those go up to 256, which 128
/// ranks reach; of more ranks each element has terms of every second, third, … rank, beginning with another one each
/// time, and zeros of the rest.
class KnownSums {
 public:
  enum class Wire { fp32, bf16 };
  explicit KnownSums(int ranks, Wire wire = Wire::fp32);

  /// What rank `rank` brings as element `index`, and the sum of what all bring.
  float term(std::size_t index, int rank) const;
  float sum(std::size_t index) const;
  /// Elements that are not the sum. `first`: index of the first.
  std::size_t count_wrong(std::span<const float> sums, std::size_t first = 0) const;

 private:
  struct Members {
    std::uint32_t first, count;  ///< ranks first, first + stride_, …: so many
  };
  Members members(std::size_t index) const;
  std::uint32_t base(std::size_t index) const;

  std::uint32_t ranks_, stride_, offsets_, limit_;
};

}  // namespace lockstep::app
