/// \file
/// The recurrence of an LSTM on the CPU. Each step is one product over the sequences and one fused pass over the gates.
/// Weights are packed once per call.
#pragma once

#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of workspace that each of the two functions below needs.
std::size_t lstm_workspace(const Lstm& shape, Bf16Unit unit) noexcept;

/// Implement SequenceOperations::lstm_forward and lstm_backward.
void lstm_forward(const Lstm& shape, const LstmForwardOperands& operands, std::span<float> workspace,
                  ThreadPool& threads, Bf16Unit unit);
void lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands, std::span<float> workspace,
                   ThreadPool& threads, Bf16Unit unit);

}  // namespace lockstep::model::cpu
