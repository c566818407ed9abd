/// \file
/// A session of cuDNN on the current device, which loads and starts it at first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <cuda_runtime_api.h>

#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/cuda/device_memory.hpp"

namespace lockstep::model::cuda {

class CudnnSession {
 public:
  /// Starts cuDNN. Returns false if it cannot be used here.
  bool start();
  /// Returns why cuDNN cannot be used; empty if it can; nullopt before the first start().
  const std::optional<std::string>& obstacle() const noexcept { return obstacle_; }
  /// Requires a successful start().
  CudnnDevice device() const { return CudnnDevice(handle_.get()); }
  std::size_t version() const { return cudnnGetVersion(); }  ///< 91900
  std::string version_text() const;                          ///< "cuDNN 9.19.0"

  /// Enqueues a plan. pointers: addresses of the tensors `names`. what: the work, for messages ("convolving"). Throws
  /// DeviceError.
  void run(cudaStream_t stream, const CudnnPlan& plan, std::span<const std::int64_t> names,
           std::span<void* const> pointers, void* workspace, const char* what);

 private:
  struct Destroy {
    void operator()(cudnnContext* handle) const noexcept { static_cast<void>(cudnnDestroy(handle)); }
  };
  std::optional<std::string> obstacle_;
  std::unique_ptr<cudnnContext, Destroy> handle_;
};

/// Grows a block to at least `bytes`, without its content, and returns its address. Calls before_moving before it
/// releases a smaller block.
void* grown(Block& block, std::size_t bytes, DeviceMemory& memory, const std::function<void()>& before_moving);

}  // namespace lockstep::model::cuda
