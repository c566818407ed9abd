/// \file
/// Operations on images on one GPU: convolutions as matrix multiplications or through a library, everything else in our
/// own kernels (image_kernels.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/cuda/convolution_library.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/kernels.hpp"
#include "model/cuda/matmul.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

class CudaImages final : public ImageOperations {
 public:
  /// Resources of the backend that owns the operations; all of them outlive the operations.
  struct Device {
    cudaStream_t stream = nullptr;
    Matmul& matmul;
    DeviceMemory& memory;
    Scratch scratch;  ///< for column sums of any width (scratch_bytes())
    OperationTypes types;
    Tuning tuning = Tuning::first;  ///< choice of a library's plans
    /// Called before memory that recorded work may use is released: waits for the stream and drops the recordings.
    std::function<void()> forget_recordings;
  };
  explicit CudaImages(Device device);

  /// "convolutions by cuDNN 9.19.0" or "convolutions by products"
  std::string description() const;
  bool recomputes_relu() const noexcept override { return true; }
  /// True for convolutions that run as products.
  bool adds_image_gradient(const Convolution& shape) const noexcept override;

 private:
  void do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) override;
  void do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                              Activation activation, const Tensor& y) override;
  void do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                               Accumulate accumulate) override;
  void do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x) override;
  void do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) override;
  void do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) override;
  void do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) override;
  void do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) override;
  void do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y) override;
  void do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                          const Tensor& d_y, const Tensor& d_x) override;
  void do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                            const Tensor& y) override;
  void do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& d_y,
                             const Tensor& d_x) override;
  void do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) override;
  void do_batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) override;
  void do_batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight, Accumulate accumulate,
                                const Tensor& d_mean, const Tensor& d_variance) override;
  void do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) override;
  void do_batch_norm_inference_backward(const BatchNorm& norm,
                                        const BatchNormInferenceBackwardOperands& operands) override;
  void do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                   Accumulate accumulate) override;
  void do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) override;

  void* patch_workspace(const Convolution& shape, const Tensor& x);
  /// Null for convolutions that only products can run.
  ConvolutionLibrary* library_for(const Convolution& shape) const noexcept;

  const Device device_;
  Block pair_sums_;  ///< parts of batch normalisation's sums
  Block patches_;    ///< patches of the largest tile so far, if no library provides memory
  std::unique_ptr<ConvolutionLibrary> library_;
};

}  // namespace lockstep::model::cuda
