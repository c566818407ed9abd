/// \file
/// Plans of attention in bfloat16, causal or not, with cuDNN. A plan is a graph of products, passes and reductions,
/// which cuDNN recognises as a whole and compiles to one fused kernel (Dao et al., "FlashAttention", 2022), in about
/// two seconds when the plan is made. The graphs are the same as those of NVIDIA's front end (the composite attention
/// nodes of cudnn-frontend 1.23), which this program does not use.
///
/// The graph determines if the backward pass is deterministic; the numerical notes of the engines do not say it. If the
/// gradients of queries go through a float32 tensor, blocks add to it in any order. With Kind::backward, they are the
/// plain result of a product with the gradients of all scores, which the engine keeps in its workspace in bfloat16. The
/// front end builds the same graph on Hopper for a deterministic algorithm. Kind::backward_in_any_order is not
/// deterministic, and moves a third fewer bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Tensors and layouts are those of attention in SequenceOperations: a joint row has queries, keys and values.
struct CudnnAttentionProblem {
  enum class Kind { forward, backward, backward_in_any_order };
  Kind kind = Kind::forward;
  std::int64_t samples = 0, context = 0, heads = 0, head_size = 0;
  bool causal = true;

  auto operator<=>(const CudnnAttentionProblem&) const = default;
};

/// Names of the tensors in the graphs. Scale, masked and one are float32 numbers in host memory; only causal graphs
/// have masked. Query sums are for backward_in_any_order: float32 [samples, heads, context, head size], initially zero.
inline constexpr std::int64_t kCudnnQueries = 1, kCudnnKeys = 2, kCudnnValues = 3, kCudnnResult = 4, kCudnnLogSums = 5,
                              kCudnnResultGradient = 6, kCudnnQueryGradient = 7, kCudnnKeyGradient = 8,
                              kCudnnValueGradient = 9, kCudnnDeltas = 10, kCudnnScale = 11, kCudnnMasked = 12,
                              kCudnnOne = 13, kCudnnQuerySums = 14;

/// Oldest version: before 9.10.2 gradients were wrong for some shapes, and the value of masked was another.
inline constexpr std::size_t kMinCudnnForAttention = 91002;
/// True if the graphs can compute this attention: no dropout, all queries, head sizes of whole packs, and a context
/// that is not too short.
bool cudnn_may_take(const Attention& shape) noexcept;
/// Returns the samples per backward call, such that the gradients of their scores (or their query sums) fit the
/// workspace and calls are few and nearly equal. 0 if one sample does not fit.
std::int64_t cudnn_attention_samples(const Attention& shape, CudnnAttentionProblem::Kind kind, std::int64_t samples,
                                     std::size_t most_workspace) noexcept;

/// Returns nullopt if no engine is acceptable.
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnAttentionProblem& problem,
                                         std::size_t most_workspace);

}  // namespace lockstep::model::cuda
