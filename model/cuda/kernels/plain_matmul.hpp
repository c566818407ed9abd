/// \file
/// A matrix multiplication for shapes that cuBLASLt has no kernel for: correct for every shape, and slow.
#pragma once

#include <cuda_runtime_api.h>

#include "model/backend.hpp"

namespace lockstep::model::cuda {

/// out = a b or out += a b; a_transposed selects a's transpose, b_transposed likewise. a and b float32 or bfloat16, of
/// one type; out float32 or of that type, not empty. Sums are fp32 in the order of the terms.
void plain_matmul(cudaStream_t stream, const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed,
                  Accumulate accumulate, const Tensor& out);

}  // namespace lockstep::model::cuda
