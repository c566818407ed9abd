/// \file
/// Convolutions on the CPU through oneDNN; this is the only interface to it. With a Bf16Unit the factors of their
/// products are rounded to bf16: by oneDNN's code for bf16, whose bits are its own, or (emulations) before its code for
/// fp32. Gradients of filters by AMX are products of our own (bf16/filters.hpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

/// Convolutions of plain NHWC images with plain filters [patch, out channels]. The resources of a shape (generated
/// code, workspace for reordered filters and partial sums) are made at the first call with that shape and batch size,
/// and kept.
///
/// oneDNN runs every call on one thread; the threads are the pool's, each with its own images. The partition of a batch
/// depends on its shape alone, and the sums over images are added in the order of the partition, so the number of
/// threads does not change a bit. One caller at a time.
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

  /// Remarks about slow convolutions: one sentence for each shape and direction that oneDNN has no direct code for.
  std::vector<std::string> notes() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

/// True if an implementation, by its oneDNN name ("jit:avx512_core", "gemm:jit", "ref:any"), is one of oneDNN's
/// fallbacks: a matrix of patches (a few times slower), or plain loops (a hundred times).
bool is_fallback(std::string_view implementation) noexcept;

}  // namespace lockstep::model::cpu
