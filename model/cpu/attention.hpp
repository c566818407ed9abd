/// \file
/// Attention on the CPU, one head of one sample at a time, in tiles of queries. The scores of a tile stay in the cache
/// between the product that computes them and the product that reads them. Causal attention computes no scores for keys
/// after the last query of a tile. No context x context matrix is stored: backward recomputes the probabilities from
/// the logs of their sums (Dao et al., "FlashAttention", 2022, on one level of memory).
///
/// Within a tile, masked scores have probability zero. A NaN in a masked key therefore still reaches all queries of its
/// tile. In bf16 this also holds for keys up to the next multiple of 32.
#pragma once

#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of workspace that each of the two functions below needs for `threads` threads.
std::size_t attention_workspace(const Attention& shape, std::size_t threads, Bf16Unit unit) noexcept;

/// Implement SequenceOperations::attention_forward and attention_backward.
void attention_forward(const Attention& shape, const AttentionForwardOperands& operands, std::span<float> workspace,
                       ThreadPool& threads, Bf16Unit unit);
void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands, std::span<float> workspace,
                        ThreadPool& threads, Bf16Unit unit);

}  // namespace lockstep::model::cpu
