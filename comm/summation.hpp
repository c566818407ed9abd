/// \file
/// The additions of an all-reduce, vectorised. Every element is added in the order in which its terms are given, so the
/// result does not depend on the vector width.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::comm {

/// sum[i] += term[i]; the ranges do not overlap.
void add_to(float* sum, const float* term, std::size_t count);
void add_to(double* sum, const double* term, std::size_t count);

/// For i in [begin, end): buffers[0][i] + buffers[1][i] + … in that order, written to the element i of every buffer.
/// Each element is read once and written once per buffer; the partial sums stay in the first-level cache.
void sum_into_all(std::span<float* const> buffers, std::size_t begin, std::size_t end);
void sum_into_all(std::span<double* const> buffers, std::size_t begin, std::size_t end);

/// The same sum, written to `destination` (which may be one of the buffers) from its element `begin` on.
void sum_into(float* destination, std::span<float* const> buffers, std::size_t begin, std::size_t end);

}  // namespace lockstep::comm
