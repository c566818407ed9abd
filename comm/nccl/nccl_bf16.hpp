/// \file
/// Between float32 and bfloat16 on the GPU, for sums that travel as bfloat16. Enqueued on `stream` (a cudaStream_t);
/// the result is the launch's cudaError_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::comm {

/// rounded[i] = values[i], to nearest, ties to even. All of it is device memory.
int enqueue_rounding(void* stream, std::uint16_t* rounded, const float* values, std::size_t count) noexcept;
/// values[i] = rounded[i].
int enqueue_widening(void* stream, float* values, const std::uint16_t* rounded, std::size_t count) noexcept;

}  // namespace lockstep::comm
