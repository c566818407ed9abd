/// \file
/// The additions of an all-reduce and the rounding of its wire format, vectorised. The terms of every element are added
/// in the given order, so the result does not depend on the vector width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::comm {

/// sum[i] += term[i]; the ranges do not overlap.
void add_to(float* sum, const float* term, std::size_t count);
void add_to(double* sum, const double* term, std::size_t count);

/// For i in [begin, end): buffers[0][i] + buffers[1][i] + … in that order, written to element i of every destination,
/// which may be among the buffers. Each element is read once and written once per destination; the partial sums stay in
/// the first-level cache.
void sum_into(std::span<float* const> destinations, std::span<float* const> buffers, std::size_t begin,
              std::size_t end);
void sum_into(std::span<double* const> destinations, std::span<double* const> buffers, std::size_t begin,
              std::size_t end);

/// bfloat16, the upper half of a float: rounded to nearest, ties to even. Infinities stay, NaNs stay NaNs; values
/// nearer to 2^128 than to the largest bfloat16 become infinite. Rounded values round to themselves.
using Bf16 = std::uint16_t;

/// rounded[i] = values[i]; with `errors` (may be nullptr) errors[i] = values[i] - rounded[i], which is exact, or 0
/// where rounded[i] is not finite. The ranges do not overlap.
void round_to_bf16(Bf16* rounded, const float* values, float* errors, std::size_t count);

/// Replaces values[i] by its rounded value; `errors` as in round_to_bf16().
void round_in_place(float* values, float* errors, std::size_t count);

/// sum[i] += term[i].
void add_to(float* sum, const Bf16* term, std::size_t count);

/// values[i] = rounded[i].
void widen(float* values, const Bf16* rounded, std::size_t count);

}  // namespace lockstep::comm
