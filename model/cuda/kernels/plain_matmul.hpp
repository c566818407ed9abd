/// \file
/// A slow matrix multiplication for any shape, used if cuBLASLt has no kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "model/backend.hpp"

namespace lockstep::model::cuda {

/// out = a b or out += a b; a_transposed selects a's transpose, b_transposed likewise. a and b have one type, float32
/// or bfloat16; out is not empty and has that type or float32. Sums are fp32, in the order of the terms.
void plain_matmul(cudaStream_t stream, const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed,
                  Accumulate accumulate, const Tensor& out);

}  // namespace lockstep::model::cuda
