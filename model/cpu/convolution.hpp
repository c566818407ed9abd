/// \file
/// Convolutions on the CPU through oneDNN; this is the only interface to it. With a Bf16Unit, factors are rounded to
/// bf16: oneDNN's bf16 code rounds them, with bits of its own, or, for emulations, they are rounded before its fp32
/// code. With AMX, gradients of filters are our own products (bf16/filters.hpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

/// Convolutions of plain NHWC images with plain filters [patch, out channels]. The first call with a shape and batch
/// size creates their resources (generated code, workspace for reordered filters and partial sums), which are kept.
///
/// The threads of the pool compute different images; oneDNN runs each call on one thread. The partition of a batch
/// depends on its shape alone, and sums over images are added in the order of the partition, so the number of threads
/// does not change the bits. Not thread-safe: one caller at a time.
class Convolver {
 public:
  Convolver(ThreadPool& threads, Bf16Unit unit);
  ~Convolver();
  Convolver(const Convolver&) = delete;
  Convolver& operator=(const Convolver&) = delete;

  /// Implement the contracts of ImageOperations.
  void forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
               const Tensor& y);
  void backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                Accumulate accumulate);

  /// Returns a sentence about each shape and direction for which oneDNN has only slow code.
  std::vector<std::string> notes() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

/// True if an implementation, given by its oneDNN name ("jit:avx512_core", "gemm:jit", "ref:any"), is a fallback: a
/// matrix of patches (a few times slower) or plain loops (a hundred times slower).
bool is_fallback(std::string_view implementation) noexcept;

}  // namespace lockstep::model::cpu
