/// \file
/// The recurrence of a GRU on the CPU. Each step is one product over the sequences and one fused pass over the gates.
/// Weights are packed once per call.
#pragma once

#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of workspace that each of the two functions below needs.
std::size_t gru_workspace(const Gru& shape, Bf16Unit unit) noexcept;

/// Implement SequenceOperations::gru_forward and gru_backward.
void gru_forward(const Gru& shape, const GruForwardOperands& operands, std::span<float> workspace, ThreadPool& threads,
                 Bf16Unit unit);
void gru_backward(const Gru& shape, const GruBackwardOperands& operands, std::span<float> workspace,
                  ThreadPool& threads, Bf16Unit unit);

}  // namespace lockstep::model::cpu
