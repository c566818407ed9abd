/// \file
/// A library that convolves faster than matrix multiplications do, where there is one.
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

/// Convolutions without bias and activation. Each function returns false, and does nothing, where the library has no
/// way to do it that repeats bit for bit. What it finds out about a shape, and memory for it, it takes when the shape
/// comes first; a recorded call is never the first.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
                                     const Tensor& y) = 0;
  /// d_w: float32 [patch, out channels], = or +=. The gradient of this batch is rounded to bfloat16 before.
  [[nodiscard]] virtual bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x,
                                             const Tensor& d_y, Accumulate accumulate, const Tensor& d_w) = 0;
  [[nodiscard]] virtual bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w,
                                            const Tensor& d_y, const Tensor& d_x) = 0;
  /// Whether it has been found to be here, by the first call of the functions above.
  virtual bool is_there() const noexcept = 0;
  /// Memory for what comes next on the stream, until the next call of any function.
  virtual void* workspace(std::size_t bytes) = 0;
  /// "cuDNN 9.19.0"
  virtual std::string description() const = 0;

 protected:
  ConvolutionLibrary() = default;
};

/// Null where the program was built without one, or where it cannot be loaded here. `memory` outlives the library;
/// `before_moving` is called before memory that enqueued or recorded work uses is given back.
std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                             Tuning tuning = Tuning::first);

}  // namespace lockstep::model::cuda
