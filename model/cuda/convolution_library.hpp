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

/// Convolutions without bias and activation. Each function returns false, and does nothing, if the library cannot run
/// it repeatably bit for bit. The library queries a shape, and allocates memory for it, at the shape's first call; a
/// recorded call is never the first.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
                                     const Tensor& y) = 0;
  /// d_w: float32 [patch, out channels], = or +=. The gradient of this batch is first rounded to bfloat16.
  [[nodiscard]] virtual bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x,
                                             const Tensor& d_y, Accumulate accumulate, const Tensor& d_w) = 0;
  [[nodiscard]] virtual bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w,
                                            const Tensor& d_y, const Tensor& d_x) = 0;
  /// True once a call of the functions above has found the library.
  virtual bool is_there() const noexcept = 0;
  /// Memory for the next work on the stream, valid until the next call of any function.
  virtual void* workspace(std::size_t bytes) = 0;
  /// "cuDNN 9.19.0"
  virtual std::string description() const = 0;

 protected:
  ConvolutionLibrary() = default;
};

/// Null in a build without a library, or if it cannot be loaded. `memory` outlives the library; `before_moving` is
/// called before memory that enqueued or recorded work uses is released.
std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                             Tuning tuning = Tuning::first);

}  // namespace lockstep::model::cuda
