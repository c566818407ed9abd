/// \file
/// How cuDNN is asked for causal attention in bfloat16: by the graph of its products, passes and reductions, which it
/// recognises as a whole and makes one fused kernel of (Dao et al., "FlashAttention", 2022). The graphs are those of
/// NVIDIA's front end (cudnn-frontend 1.23, its composite nodes of attention), without it. cuDNN compiles such a kernel
/// when the plan is made, in about two seconds.
///
/// The graph decides whether the backward pass repeats bit for bit, for the engines' notes do not say. Where gradients
/// of queries pass through a tensor in float32, blocks add to it in any order. Here they are the plain result of a
/// product with the gradients of all scores, which the engine then keeps in its workspace, in bfloat16. That is what
/// the front end asks for on Hopper where a deterministic algorithm is wanted. Kind::backward_in_any_order is the other
/// way: it moves a third of the bytes less, for who does not need the same bits twice.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/cuda/cudnn_plans.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Tensors and layouts are those of SequenceOperations' attention: of a joint row the queries, keys and values.
struct CudnnAttentionProblem {
  enum class Kind { forward, backward, backward_in_any_order };
  Kind kind = Kind::forward;
  std::int64_t samples = 0, context = 0, heads = 0, head_size = 0;

  auto operator<=>(const CudnnAttentionProblem&) const = default;
};

/// Names of the tensors in the graphs. Scale, masked and one are float32 numbers in host memory. Query sums are those of
/// backward_in_any_order: float32 [samples, heads, context, head size], zero before.
inline constexpr std::int64_t kCudnnQueries = 1, kCudnnKeys = 2, kCudnnValues = 3, kCudnnResult = 4, kCudnnLogSums = 5,
                              kCudnnResultGradient = 6, kCudnnQueryGradient = 7, kCudnnKeyGradient = 8,
                              kCudnnValueGradient = 9, kCudnnDeltas = 10, kCudnnScale = 11, kCudnnMasked = 12,
                              kCudnnOne = 13, kCudnnQuerySums = 14;

/// Before 9.10.2 gradients were wrong for some shapes, and another number stood for what is masked.
inline constexpr std::size_t kLeastCudnnForAttention = 91002;
/// True if the graphs compute this attention: whole tiles, no dropout, all queries.
bool cudnn_may_take(const Attention& shape) noexcept;
/// Samples that one backward pass takes at a time, so that the gradients of their scores, or their query sums, fit in the
/// workspace, in as few nearly equal calls as that allows; 0 where not even those of one fit.
std::int64_t cudnn_attention_samples(const Attention& shape, CudnnAttentionProblem::Kind kind, std::int64_t samples,
                                     std::size_t most_workspace) noexcept;

/// Nothing where no engine will do.
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnAttentionProblem& problem,
                                         std::size_t most_workspace);

}  // namespace lockstep::model::cuda
