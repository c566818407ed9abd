/// \file
/// Operations on images on one GPU: convolutions as matrix multiplications or through a library, and our own kernels
/// (image_kernels.hpp) for everything else.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/cuda/convolution_library.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/matmul.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

class CudaImages final : public ImageOperations {
 public:
  /// Resources of the backend that owns the operations; all must outlive the operations.
  struct Device {
    cudaStream_t stream = nullptr;
    Matmul& matmul;
    DeviceMemory& memory;
    Scratch scratch;  ///< for column sums of any width (scratch_bytes())
    OperationTypes types;
    Tuning tuning = Tuning::first;  ///< choice of a library's plans
    /// Called before memory that recorded work may use is released. Must wait for the stream and delete the recordings.
    std::function<void()> forget_recordings;
  };
  explicit CudaImages(Device device);

  /// Returns "convolutions by cuDNN 9.19.0" or "convolutions by products".
  std::string description() const;
  bool recomputes_relu() const noexcept override { return true; }
  /// True for convolutions that run as products.
  bool adds_image_gradient(const Convolution& shape) const noexcept override;

 private:
  LOCKSTEP_IMAGE_OPERATIONS(void, override)
  void do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x) override;

  void* patch_workspace(const Convolution& shape, const Tensor& x);
  void* workspace(std::size_t bytes);
  /// Returns the library, or null for convolutions that must run as products.
  ConvolutionLibrary* library_for(const Convolution& shape) const noexcept;

  const Device device_;
  Block pair_sums_;  ///< partial sums of batch normalisation
  Block patches_;    ///< patches of the largest tile so far, if no library provides memory
  std::unique_ptr<ConvolutionLibrary> library_;
};

}  // namespace lockstep::model::cuda
