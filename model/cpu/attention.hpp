/// \file
/// Causal attention on the CPU, a head of a sample at a time, in tiles of queries. A tile's scores against the keys up
/// to its last query stay in the cache from the product that makes them to the product that consumes them. Scores that
/// the mask hides beyond a tile are never computed. Nothing of context x context is kept: the backward pass recomputes
/// the probabilities from the logs of their sums (Dao et al., "FlashAttention", 2022, on one level of memory).
///
/// Within a tile, masked scores have a probability of zero, so a NaN there also reaches the queries before it. In bf16
/// so does one among the keys up to the next multiple of 32.
#pragma once

#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of workspace that each of the two functions needs for `threads` threads.
std::size_t attention_workspace(const Attention& shape, std::size_t threads, Bf16Unit unit) noexcept;

/// Implement SequenceOperations::attention_forward and attention_backward.
void attention_forward(const Attention& shape, const AttentionForwardOperands& operands, std::span<float> workspace,
                       ThreadPool& threads, Bf16Unit unit);
void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands, std::span<float> workspace,
                        ThreadPool& threads, Bf16Unit unit);

}  // namespace lockstep::model::cpu
