// Convolutions in bfloat16 through cuDNN. Its engines want filters as [out channels, patch], ours are [patch, out
// channels]: they are transposed on the way, which costs little, for they are small beside the images. Gradients of
// filters come in bfloat16, rounded once from sums in fp32, and are added to ours in fp32.
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "model/cuda/convolution_library.hpp"
#include "model/cuda/cudnn_plans.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/image_kernels.hpp"
#include "model/device.hpp"
#include "model/device_workspaces.hpp"

namespace lockstep::model {

std::string convolution_library_error() { return cuda::cudnn_obstacle(); }

namespace cuda {

namespace {

bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % kCudnnAlignment != 0) return false;
  }
  return true;
}

class CudnnConvolution final : public ConvolutionLibrary {
 public:
  CudnnConvolution(DeviceMemory& memory, std::function<void()> before_moving)
      : memory_(memory), before_moving_(std::move(before_moving)) {}

  bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
               const Tensor& y) override {
    const CudnnPlan* const plan = plan_for({CudnnProblem::Kind::forward, shape, x.rows});
    if (plan == nullptr || !are_aligned({x.data, y.data})) return false;
    run(stream, *plan, x.data, turned(stream, w), y.data);
    return true;
  }

  bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                       Accumulate accumulate, const Tensor& d_w) override {
    const CudnnPlan* const plan = plan_for({CudnnProblem::Kind::filter_gradient, shape, x.rows});
    if (plan == nullptr || !are_aligned({x.data, d_y.data})) return false;
    const Tensor rounded{nullptr, x.type, d_w.columns, d_w.rows};
    const Tensor turned{grown(filters_, rounded), rounded.type, rounded.rows, rounded.columns};
    run(stream, *plan, x.data, turned.data, d_y.data);
    transpose(stream, turned, accumulate, d_w);
    return true;
  }

  bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                      const Tensor& d_x) override {
    const CudnnPlan* const plan = plan_for({CudnnProblem::Kind::image_gradient, shape, d_y.rows});
    if (plan == nullptr || !are_aligned({d_x.data, d_y.data})) return false;
    run(stream, *plan, d_x.data, turned(stream, w), d_y.data);
    return true;
  }

  bool is_there() const noexcept override { return obstacle_ && obstacle_->empty(); }
  void* workspace(std::size_t bytes) override { return grown(workspace_, bytes); }

  std::string description() const override {
    if (!obstacle_) return "cuDNN once there are any";
    if (!obstacle_->empty()) return "products: " + *obstacle_;
    const std::size_t version = cudnnGetVersion();
    return fmt::format("cuDNN {}.{}.{}{}", version / 10000, version / 100 % 100, version % 100,
                       unplanned_ == 0 ? "" : fmt::format(", {} of them by products", unplanned_));
  }

 private:
  struct Destroy {
    void operator()(cudnnContext* handle) const noexcept { static_cast<void>(cudnnDestroy(handle)); }
  };

  /// Loads cuDNN when it is needed first; false where that fails.
  bool start() {
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

  /// Null where there is none.
  const CudnnPlan* plan_for(const CudnnProblem& problem) {
    if (!start()) return nullptr;
    const auto key = problem.key();
    auto known = plans_.find(key);
    if (known == plans_.end()) {
      std::optional<CudnnPlan> plan = find_cudnn_plan(CudnnDevice(handle_.get()), problem, kMostLibraryWorkspace);
      if (!plan) ++unplanned_;
      known = plans_.emplace(key, std::move(plan)).first;
    }
    return known->second ? &*known->second : nullptr;
  }

  /// A block that is large enough, for bytes that nobody keeps.
  void* grown(Block& block, std::size_t bytes) {
    if (bytes > block.bytes()) {
      if (block.data() != nullptr) before_moving_();
      { const Block old = std::move(block); }
      block = Block(memory_, bytes);
    }
    return block.data();
  }
  void* grown(Block& block, const Tensor& like) { return grown(block, like.bytes()); }

  void* turned(cudaStream_t stream, const Tensor& w) {
    const Tensor to{grown(filters_, w), w.type, w.columns, w.rows};
    transpose(stream, w, Accumulate::no, to);
    return to.data;
  }

  void run(cudaStream_t stream, const CudnnPlan& plan, void* images, void* filters, void* output) {
    const std::array names{kCudnnImages, kCudnnFilters, kCudnnOutput};
    const std::array pointers{images, filters, output};
    void* const workspace = plan.workspace == 0 ? nullptr : grown(workspace_, plan.workspace);
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), 3)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), 3)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace)
        .finalize();
    check_cudnn(cudnnSetStream(handle_.get(), stream), "choosing a stream");
    check_cudnn(cudnnBackendExecute(handle_.get(), plan.descriptor.get(), pack.get()),
                describe_current_device() + ", convolving");
  }

  DeviceMemory& memory_;
  std::function<void()> before_moving_;
  std::optional<std::string> obstacle_;  ///< nothing: not yet tried
  std::unique_ptr<cudnnContext, Destroy> handle_;
  std::map<std::array<std::int64_t, 13>, std::optional<CudnnPlan>> plans_;
  Block filters_, workspace_;
  int unplanned_ = 0;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory& memory,
                                                             std::function<void()> before_moving) {
  return std::make_unique<CudnnConvolution>(memory, std::move(before_moving));
}

}  // namespace cuda

}  // namespace lockstep::model
