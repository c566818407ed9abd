/// \file
/// Products by the plain kernel. Matrices may have longer rows than the others need.
#pragma once

#include "model/cuda/kernels/plain_matmul.hpp"
#include "model/cuda/padded_copies.hpp"

namespace lockstep::model::cuda::test {

inline void plain_product(const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed, Accumulate accumulate,
                          const Tensor& out) {
  DeviceMemory memory(0);
  PaddedCopies copies(memory, {});
  PaddedCopies::run(nullptr, copies.product_of({a, b, out}, a_transposed, b_transposed), accumulate,
                    [&](const Tensor& left, const Tensor& right, const Tensor& to) {
                      plain_matmul(nullptr, left, a_transposed, right, b_transposed, accumulate, to);
                    });
}

}  // namespace lockstep::model::cuda::test
