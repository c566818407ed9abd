/// \file
/// Conversion between float32 and bfloat16 on the GPU, for sums in bfloat16. Enqueued on `stream` (a cudaStream_t);
/// returns the launch's cudaError_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::comm {

/// rounded[i] = values[i], rounded to nearest, ties to even. All arrays are device memory.
int enqueue_rounding(void* stream, std::uint16_t* rounded, const float* values, std::size_t count) noexcept;
/// values[i] = rounded[i].
int enqueue_widening(void* stream, float* values, const std::uint16_t* rounded, std::size_t count) noexcept;

}  // namespace lockstep::comm
