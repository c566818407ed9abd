/// \file
/// Convolutions on the CPU, through oneDNN: the one seam to it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

/// Convolutions of plain NHWC images with plain filters [patch, out channels]. What a shape needs (generated code,
/// workspace for reordered filters and partial sums) is made when the shape and the size of its batch are first seen,
/// and kept.
///
/// oneDNN runs every call on one thread; the threads are the pool's, each with its own images. How a batch is cut
/// depends on its shape alone, and the sums over images are added in the order of the cuts, so the number of threads
/// does not change a bit. One caller at a time.
class Convolver {
 public:
  explicit Convolver(ThreadPool& threads);
  ~Convolver();
  Convolver(const Convolver&) = delete;
  Convolver& operator=(const Convolver&) = delete;

  /// The contracts of ImageOperations.
  void forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
               const Tensor& y);
  void backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                Accumulate accumulate);

  /// What is slower than it should be, one sentence for each shape and direction that oneDNN has no direct code for.
  std::vector<std::string> notes() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

/// Whether an implementation, by the name that oneDNN gives it ("jit:avx512_core", "gemm:jit", "ref:any"), is one of
/// those that it falls back to: through a matrix of patches (a few times slower), or plain loops (a hundred times).
bool is_fallback(std::string_view implementation) noexcept;

}  // namespace lockstep::model::cpu
