/// \file
/// Interface to a library with faster convolutions than matrix multiplications.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "model/cuda/device_memory.hpp"
#include "model/cuda/tuning.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

/// Convolutions without bias and activation. Each function returns false, and does nothing, if the library has no
/// deterministic plan. The first call with a shape makes its plan and allocates memory, so it must not be recorded.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
                                     const Tensor& y) = 0;
  /// d_w: float32 [patch, out channels], = or +=. The gradient of this batch is rounded to bfloat16 before it is added.
  [[nodiscard]] virtual bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x,
                                             const Tensor& d_y, Accumulate accumulate, const Tensor& d_w) = 0;
  [[nodiscard]] virtual bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w,
                                            const Tensor& d_y, const Tensor& d_x) = 0;
  /// True once a call of the functions above has loaded the library.
  virtual bool is_there() const noexcept = 0;
  /// Returns memory for the next work on the stream, valid until the next call of any function.
  virtual void* workspace(std::size_t bytes) = 0;
  /// "cuDNN 9.19.0"
  virtual std::string description() const = 0;

 protected:
  ConvolutionLibrary() = default;
};

/// Returns null in a build without a library, or if it cannot be loaded. memory must outlive the library.
/// before_moving: called before memory that enqueued or recorded work uses is released.
std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                             Tuning tuning = Tuning::first);

}  // namespace lockstep::model::cuda
