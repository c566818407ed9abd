// Convolutions in bfloat16 through cuDNN. Its engines need filters as [out channels, patch]. Ours are [patch, out
// channels] and are transposed for each call, which costs little because they are small compared with the images. cuDNN
// returns gradients of filters in bfloat16, rounded once from fp32 sums; they are added to ours in fp32.
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/cuda/convolution_library.hpp"
#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/cuda/cudnn/cudnn_session.hpp"
#include "model/cuda/kernels/image_kernels.hpp"
#include "model/device.hpp"
#include "model/device_workspaces.hpp"

namespace lockstep::model {

std::string cudnn_error() { return cuda::cudnn_obstacle(); }

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
  CudnnConvolution(DeviceMemory& memory, std::function<void()> before_moving, Tuning tuning)
      : memory_(memory), before_moving_(std::move(before_moving)), tuning_(tuning) {}

  bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
               const Tensor& y) override {
    const CudnnProblem problem{CudnnProblem::Kind::forward, shape, x.rows};
    if (!may_take(problem) || !are_aligned({x.data, y.data})) return false;
    return run(stream, problem, {x.data, turned(stream, w), y.data});
  }

  bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                       Accumulate accumulate, const Tensor& d_w) override {
    const CudnnProblem problem{CudnnProblem::Kind::filter_gradient, shape, x.rows};
    if (!may_take(problem) || !are_aligned({x.data, d_y.data})) return false;
    const Tensor rounded{nullptr, x.type, d_w.columns, d_w.rows};
    const Tensor turned{grown(filters_, rounded), rounded.type, rounded.rows, rounded.columns};
    if (!run(stream, problem, {x.data, turned.data, d_y.data})) return false;
    transpose(stream, turned, accumulate, d_w);
    return true;
  }

  bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                      const Tensor& d_x) override {
    const CudnnProblem problem{CudnnProblem::Kind::image_gradient, shape, d_y.rows};
    if (!may_take(problem) || !are_aligned({d_x.data, d_y.data})) return false;
    return run(stream, problem, {d_x.data, turned(stream, w), d_y.data});
  }

  bool is_there() const noexcept override { return cudnn_.obstacle() && cudnn_.obstacle()->empty(); }
  void* workspace(std::size_t bytes) override { return grown(workspace_, bytes); }

  std::string description() const override {
    const std::optional<std::string>& obstacle = cudnn_.obstacle();
    if (!obstacle) return "cuDNN once there are any";
    if (!obstacle->empty()) return "products: " + *obstacle;
    return cudnn_.version_text() + (unplanned_ == 0 ? "" : fmt::format(", {} of them by products", unplanned_));
  }

 private:
  struct Pointers {
    void* images;
    void* filters;
    void* output;
  };

  /// Returns false if it is known that there is no plan.
  bool may_take(const CudnnProblem& problem) {
    if (!cudnn_.start()) return false;
    const auto known = plans_.find(problem.key());
    return known == plans_.end() || known->second.has_value();
  }
  /// Returns false if there is no plan.
  bool run(cudaStream_t stream, const CudnnProblem& problem, const Pointers& pointers) {
    const auto key = problem.key();
    auto known = plans_.find(key);
    if (known == plans_.end()) {
      known = plans_.emplace(key, choose(stream, problem, pointers)).first;
      if (!known->second) ++unplanned_;
    }
    if (!known->second) return false;
    enqueue(stream, *known->second, pointers);
    return true;
  }

  /// Chooses the first plan, or the fastest. A trial writes the same tensors as the call.
  std::optional<CudnnPlan> choose(cudaStream_t stream, const CudnnProblem& problem, const Pointers& pointers) {
    constexpr std::size_t kCandidates = 8;
    constexpr int kRounds = 3;
    const bool timed = tuning_ == Tuning::timed && !is_recorded(stream);
    std::vector<CudnnPlan> plans =
        find_cudnn_plans(cudnn_.device(), problem, kMaxLibraryWorkspace, timed ? kCandidates : 1);
    if (plans.empty()) return std::nullopt;
    std::size_t best = 0;
    float best_time = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; plans.size() > 1 && i < plans.size(); ++i) {
      try {
        enqueue(stream, plans[i], pointers);
      } catch (const DeviceError&) {  // tries the next one
        continue;
      }
      const float time = time_of(stream, kRounds, [&] { enqueue(stream, plans[i], pointers); });
      if (time >= best_time) continue;
      best_time = time;
      best = i;
    }
    return std::move(plans[best]);
  }

  void* grown(Block& block, std::size_t bytes) { return cuda::grown(block, bytes, memory_, before_moving_); }
  void* grown(Block& block, const Tensor& like) { return grown(block, like.bytes()); }

  void* turned(cudaStream_t stream, const Tensor& w) {
    const Tensor to{grown(filters_, w), w.type, w.columns, w.rows};
    transpose(stream, w, Accumulate::no, to);
    return to.data;
  }

  void enqueue(cudaStream_t stream, const CudnnPlan& plan, const Pointers& pointers) {
    const std::array names{kCudnnImages, kCudnnFilters, kCudnnOutput};
    const std::array places{pointers.images, pointers.filters, pointers.output};
    void* const workspace = plan.workspace == 0 ? nullptr : grown(workspace_, plan.workspace);
    cudnn_.run(stream, plan, names, places, workspace, "convolving");
  }

  DeviceMemory& memory_;
  std::function<void()> before_moving_;
  Tuning tuning_;
  CudnnSession cudnn_;
  std::map<CudnnProblem::Key, std::optional<CudnnPlan>> plans_;
  Block filters_, workspace_;
  int unplanned_ = 0;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                             Tuning tuning) {
  return std::make_unique<CudnnConvolution>(memory, std::move(before_moving), tuning);
}

}  // namespace cuda

}  // namespace lockstep::model
