/// \file
/// The recurrence of an LSTM on the CPU: per step one product over the lanes, with weights that are packed once per
/// call, and one fused pass over the gates.
#pragma once

#include <span>

#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

/// Floats of room that both need.
std::size_t lstm_room(const Lstm& shape) noexcept;

/// As SequenceOperations::lstm_forward and lstm_backward.
void lstm_forward(const Lstm& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& cells,
                  const Tensor& hidden, std::span<float> room, ThreadPool& threads);
void lstm_backward(const Lstm& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& cells,
                   const Tensor& hidden, const Tensor& d_hidden, const Tensor& d_cell, Accumulate accumulate,
                   const Tensor& d_recurrent, std::span<float> room, ThreadPool& threads);

}  // namespace lockstep::model::cpu
