// Attention in bfloat16 through cuDNN, which reads and writes our tensors in place.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/cuda/attention_library.hpp"
#include "model/cuda/cudnn/cudnn_attention_plans.hpp"
#include "model/cuda/cudnn/cudnn_session.hpp"
#include "model/cuda/handles.hpp"
#include "model/device.hpp"

namespace lockstep::model::cuda {

namespace {

/// Address of queries, keys or values (third `part` of the columns) from a sample on.
void* third_of(const Tensor& joint, const Attention& shape, std::int64_t sample, std::int64_t part) {
  const std::int64_t element = sample * shape.context * joint.columns + part * shape.width();
  return static_cast<std::byte*>(joint.data) + static_cast<std::size_t>(element) * size_of(joint.type);
}
/// Address of the rows from a sample on; each sample has `rows` rows.
void* rows_of(const Tensor& tensor, std::int64_t sample, std::int64_t rows) {
  return static_cast<std::byte*>(tensor.data) +
         static_cast<std::size_t>(sample * rows * tensor.columns) * size_of(tensor.type);
}

bool are_aligned(std::initializer_list<Tensor> tensors) {
  return std::ranges::all_of(tensors, [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % kCudnnAlignment == 0;
  });
}

/// Numbers in host memory. The graphs read them when they are enqueued.
struct HostNumbers {
  float scale, masked = -std::numeric_limits<float>::infinity(), one = 1;
  explicit HostNumbers(const Attention& shape) : scale(1 / std::sqrt(static_cast<float>(shape.head_size))) {}
};

class CudnnAttention final : public AttentionLibrary {
 public:
  CudnnAttention(DeviceMemory& memory, std::function<void()> before_moving, const AttentionLibraryOptions& options)
      : memory_(memory),
        before_moving_(std::move(before_moving)),
        most_workspace_(options.most_workspace),
        in_any_order_(options.in_any_order) {}

  bool forward(cudaStream_t stream, const Attention& shape, const AttentionForwardOperands& operands) override {
    const auto& [joint, keys, mask, y, log_sums] = operands;
    if (!takes(shape, y) || !are_aligned({joint, y, log_sums})) return false;
    Planned* const planned = plan_for({.kind = CudnnAttentionProblem::Kind::forward,
                                       .samples = joint.rows / shape.context,
                                       .context = shape.context,
                                       .heads = shape.heads,
                                       .head_size = shape.head_size,
                                       .causal = shape.causal});
    if (planned == nullptr) return false;
    HostNumbers numbers(shape);
    std::vector<Bound> tensors{{kCudnnQueries, third_of(joint, shape, 0, 0)},
                               {kCudnnKeys, third_of(joint, shape, 0, 1)},
                               {kCudnnValues, third_of(joint, shape, 0, 2)},
                               {kCudnnResult, y.data},
                               {kCudnnLogSums, log_sums.data},
                               {kCudnnScale, &numbers.scale}};
    if (shape.causal) tensors.emplace_back(kCudnnMasked, &numbers.masked);
    return run(stream, *planned, tensors);
  }

  bool backward(cudaStream_t stream, const Attention& shape, const AttentionBackwardOperands& operands,
                const Tensor& deltas) override {
    const auto& [joint, keys, mask, y, log_sums, d_y, d_joint] = operands;
    if (!takes(shape, y) || !are_aligned({joint, y, log_sums, d_y, d_joint, deltas})) return false;
    using Kind = CudnnAttentionProblem::Kind;
    // With shorter contexts, query sums need more memory than gradients of scores, which the memory plan assumes.
    const Kind kind =
        in_any_order_ && shape.context >= 2 * shape.head_size ? Kind::backward_in_any_order : Kind::backward;
    const std::int64_t samples = joint.rows / shape.context;
    const std::int64_t at_once = cudnn_attention_samples(shape, kind, samples, most_workspace_);
    if (at_once < 1) return false;
    const std::size_t bytes_of_sums =
        kind == Kind::backward ? 0 : query_sum_bytes(at_once * shape.context * shape.width());
    void* const sums = bytes_of_sums == 0 ? nullptr : grown(query_sums_, bytes_of_sums, memory_, before_moving_);
    HostNumbers numbers(shape);
    for (std::int64_t sample = 0; sample < samples; sample += at_once) {
      Planned* const planned = plan_for({.kind = kind,
                                         .samples = std::min(at_once, samples - sample),
                                         .context = shape.context,
                                         .heads = shape.heads,
                                         .head_size = shape.head_size,
                                         .causal = shape.causal});
      if (planned == nullptr) return false;
      std::vector<Bound> tensors{{kCudnnQueries, third_of(joint, shape, sample, 0)},
                                 {kCudnnKeys, third_of(joint, shape, sample, 1)},
                                 {kCudnnValues, third_of(joint, shape, sample, 2)},
                                 {kCudnnResult, rows_of(y, sample, shape.context)},
                                 {kCudnnLogSums, rows_of(log_sums, sample, shape.heads)},
                                 {kCudnnResultGradient, rows_of(d_y, sample, shape.context)},
                                 {kCudnnQueryGradient, third_of(d_joint, shape, sample, 0)},
                                 {kCudnnKeyGradient, third_of(d_joint, shape, sample, 1)},
                                 {kCudnnValueGradient, third_of(d_joint, shape, sample, 2)},
                                 {kCudnnDeltas, rows_of(deltas, sample, shape.heads)},
                                 {kCudnnScale, &numbers.scale},
                                 {kCudnnOne, &numbers.one}};
      if (shape.causal) tensors.emplace_back(kCudnnMasked, &numbers.masked);
      if (sums != nullptr) {
        tensors.emplace_back(kCudnnQuerySums, sums);
        check(cudaMemsetAsync(sums, 0, bytes_of_sums, stream), "clearing sums of gradients");
      }
      if (!run(stream, *planned, tensors)) return false;
    }
    return true;
  }

  std::string description() const override {
    const std::optional<std::string>& obstacle = cudnn_.obstacle();
    if (!obstacle) return "cuDNN once it fits";
    if (!obstacle->empty()) return "our own kernels: " + *obstacle;
    if (cudnn_.version() < kMinCudnnForAttention) {
      return fmt::format("our own kernels: {} is older than 9.10.2", cudnn_.version_text());
    }
    const auto left =
        std::ranges::count_if(plans_, [](const auto& known) { return !known.second.plan || known.second.failed; });
    return cudnn_.version_text() +
           (left == 0 ? ""
                      : fmt::format(", but {} of {} shapes by our own kernels ({})", left, plans_.size(), reason_));
  }

 private:
  struct Planned {
    std::optional<CudnnPlan> plan;
    bool failed = false;  ///< failed in a call
  };
  using Bound = std::pair<std::int64_t, void*>;  ///< a tensor's name and address

  bool takes(const Attention& shape, const Tensor& y) {
    return y.type == ElementType::bfloat16 && y.count() > 0 && cudnn_may_take(shape) && cudnn_.start() &&
           cudnn_.version() >= kMinCudnnForAttention;
  }

  /// Returns null if there is no plan.
  Planned* plan_for(const CudnnAttentionProblem& problem) {
    auto known = plans_.find(problem);
    if (known == plans_.end()) {
      known = plans_.emplace(problem, Planned{}).first;
      try {
        known->second.plan = find_cudnn_plan(cudnn_.device(), problem, most_workspace_);
        if (!known->second.plan) reason_ = "it has no plan";
      } catch (const DeviceError& error) {
        reason_ = error.what();
      }
    }
    return known->second.plan && !known->second.failed ? &known->second : nullptr;
  }

  bool run(cudaStream_t stream, Planned& planned, const std::vector<Bound>& tensors) {
    std::vector<std::int64_t> names;
    std::vector<void*> pointers;
    for (const auto& [name, pointer] : tensors) {
      names.push_back(name);
      pointers.push_back(pointer);
    }
    const CudnnPlan& plan = *planned.plan;
    void* const workspace = plan.workspace == 0 ? nullptr : grown(workspace_, plan.workspace, memory_, before_moving_);
    try {
      cudnn_.run(stream, plan, names, pointers, workspace, "attention");
      return true;
    } catch (const DeviceError& error) {
      planned.failed = true;
      reason_ = error.what();
      return false;
    }
  }

  DeviceMemory& memory_;
  std::function<void()> before_moving_;
  std::size_t most_workspace_;
  bool in_any_order_;
  CudnnSession cudnn_;
  std::map<CudnnAttentionProblem, Planned> plans_;
  std::string reason_;
  Block workspace_, query_sums_;
};

}  // namespace

std::unique_ptr<AttentionLibrary> make_attention_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                         const AttentionLibraryOptions& options) {
  return std::make_unique<CudnnAttention>(memory, std::move(before_moving), options);
}

}  // namespace lockstep::model::cuda
