/// \file
/// What the ranks bring to a benchmark's sums, so that every element of every sum can be checked by formula.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::app {

/// What rank `rank` of `ranks` brings as element `index`, and the sum of what all bring. No order of elements repeats,
/// so that exchanged pieces show; all partial sums are whole numbers that a float holds, so the sum is exact in any
/// order.
float bench_term(std::size_t index, int rank, int ranks);
float bench_sum(std::size_t index, int ranks);
/// Elements that are not the sum. `first`: index of the first.
std::size_t count_wrong(std::span<const float> sums, int ranks, std::size_t first = 0);

}  // namespace lockstep::app
