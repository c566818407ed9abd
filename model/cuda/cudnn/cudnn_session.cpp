#include "model/cuda/cudnn/cudnn_session.hpp"

#include <utility>

#include <fmt/format.h>

#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

bool CudnnSession::start() {
  if (!obstacle_) {
    obstacle_ = cudnn_obstacle();
    if (obstacle_->empty()) {
      cudnnHandle_t handle = nullptr;
      const cudnnStatus_t status = cudnnCreate(&handle);
      handle_.reset(handle);
      if (status != CUDNN_STATUS_SUCCESS) {
        obstacle_ = fmt::format("cuDNN does not start here: {}", cudnnGetErrorString(status));
      }
    }
  }
  return obstacle_->empty();
}

std::string CudnnSession::version_text() const {
  const std::size_t number = version();
  return fmt::format("cuDNN {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

void CudnnSession::run(cudaStream_t stream, const CudnnPlan& plan, std::span<const std::int64_t> names,
                       std::span<void* const> pointers, void* workspace, const char* what) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), static_cast<std::int64_t>(names.size()))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(),
           static_cast<std::int64_t>(pointers.size()))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace)
      .finalize();
  check_cudnn(cudnnSetStream(handle_.get(), stream), "choosing a stream");
  const cudnnStatus_t status = cudnnBackendExecute(handle_.get(), plan.descriptor.get(), pack.get());
  if (status != CUDNN_STATUS_SUCCESS) check_cudnn(status, describe_current_device() + ", " + what);
}

void* grown(Block& block, std::size_t bytes, DeviceMemory& memory, const std::function<void()>& before_moving) {
  if (bytes > block.bytes()) {
    if (block.data() != nullptr) before_moving();
    { const Block old = std::move(block); }
    block = Block(memory, bytes);
  }
  return block.data();
}

}  // namespace lockstep::model::cuda
