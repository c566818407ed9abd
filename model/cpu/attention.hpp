/// \file
/// Causal attention on the CPU, a head of a sample at a time, in tiles of queries: a tile's scores against the keys up
/// to its last query stay in the cache from the product that makes them to the product that uses them up, what the mask
/// hides beyond a tile is never computed, and nothing of context x context is kept: the way back makes the
/// probabilities again from the logs of their sums (Dao et al., "FlashAttention", 2022, on one level of memory).
///
/// Within a tile, what the mask hides counts with a probability of zero: a NaN reaches the queries before it there,
/// too.
#pragma once

#include <span>

#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of workspace that both need for so many threads.
std::size_t attention_workspace(const Attention& shape, std::size_t threads) noexcept;

/// As SequenceOperations::attention_forward and attention_backward.
void attention_forward(const Attention& shape, const AttentionForwardOperands& operands, std::span<float> workspace,
                       ThreadPool& threads);
void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands, std::span<float> workspace,
                        ThreadPool& threads);

}  // namespace lockstep::model::cpu
