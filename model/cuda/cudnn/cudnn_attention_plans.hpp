/// \file
/// Plans of attention in bfloat16, causal or not, with cuDNN: a graph of products, passes and reductions, which cuDNN
/// recognises as a whole and turns into one fused kernel (Dao et al., "FlashAttention", 2022). The graphs are those of
/// NVIDIA's front end (cudnn-frontend 1.23, its composite nodes of attention), without it. cuDNN compiles such a kernel
/// when the plan is made, in about two seconds.
///
/// The graph determines whether the backward pass repeats bit for bit; the engines' numerical notes do not tell. If
/// gradients of queries pass through a tensor in float32, blocks add to it in any order. Here they are the plain result
/// of a product with the gradients of all scores, which the engine then keeps in its workspace, in bfloat16. The front
/// end builds the same graph on Hopper for a deterministic algorithm. Kind::backward_in_any_order is the alternative:
/// it moves a third fewer bytes, for callers that do not need the same bits twice.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Tensors and layouts are those of SequenceOperations' attention: the queries, keys and values of a joint row.
struct CudnnAttentionProblem {
  enum class Kind { forward, backward, backward_in_any_order };
  Kind kind = Kind::forward;
  std::int64_t samples = 0, context = 0, heads = 0, head_size = 0;
  bool causal = true;

  auto operator<=>(const CudnnAttentionProblem&) const = default;
};

/// Names of the tensors in the graphs. Scale, masked and one are float32 numbers in host memory; masked belongs to
/// causal graphs. Query sums belong to backward_in_any_order: float32 [samples, heads, context, head size], initially
/// zero.
inline constexpr std::int64_t kCudnnQueries = 1, kCudnnKeys = 2, kCudnnValues = 3, kCudnnResult = 4, kCudnnLogSums = 5,
                              kCudnnResultGradient = 6, kCudnnQueryGradient = 7, kCudnnKeyGradient = 8,
                              kCudnnValueGradient = 9, kCudnnDeltas = 10, kCudnnScale = 11, kCudnnMasked = 12,
                              kCudnnOne = 13, kCudnnQuerySums = 14;

/// Before 9.10.2 gradients were wrong for some shapes, and the masked value was another number.
inline constexpr std::size_t kMinCudnnForAttention = 91002;
/// True if the graphs compute this attention: no dropout, all queries, heads of whole packs; and not too short.
bool cudnn_may_take(const Attention& shape) noexcept;
/// Number of samples per backward pass such that the gradients of their scores, or their query sums, fit in the
/// workspace, in as few nearly equal calls as possible; 0 if one sample does not fit.
std::int64_t cudnn_attention_samples(const Attention& shape, CudnnAttentionProblem::Kind kind, std::int64_t samples,
                                     std::size_t most_workspace) noexcept;

/// nullopt if no engine is acceptable.
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnAttentionProblem& problem,
                                         std::size_t most_workspace);

}  // namespace lockstep::model::cuda
