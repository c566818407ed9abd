/// \file
/// Linear maps in bf16 with values that are stored in bf16 (Holds::narrow), some or all: the sums leave the tiles of a
/// product with bias and activation, rounded, and gradients are prepared in bf16. Weights, biases and the gradients of
/// both are fp32. At least kThin outputs; no extent may be zero.
#pragma once

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/panels.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// True if one of the tensors is in bf16.
template <class... Tensors>
bool any_in_bf16(const Tensors&... tensors) noexcept {
  return ((tensors.type == ElementType::bfloat16) || ...);
}

/// y = act(x w + bias); with z present, z = x w + bias and y = gelu(z).
struct Bf16LinearForward {
  const Tensor &x, &w, &bias, &y;
  Activation activation = Activation::none;
  Tensor z = {};
};
void bf16_linear_forward(const Bf16LinearForward& map, ThreadPool& threads, Bf16Unit unit);

/// Gradients as Backend::linear_backward has them; with z present, x is gelu(z) and d_x becomes the gradient of z,
/// whose column sums d_z_sums += (may be absent).
struct Bf16LinearBackward {
  const LinearBackwardOperands& operands;
  Activation activation = Activation::none;
  Accumulate accumulate = Accumulate::no;  ///< about d_w; d_bias is always added to
  Tensor z = {}, d_z_sums = {};
};
void bf16_linear_backward(const Bf16LinearBackward& map, PanelMemory& memory, ThreadPool& threads, Bf16Unit unit);

/// d_y becomes the gradient before the activation, given y, both in bf16, in the columns [begin, end) of `rows` rows,
/// whose column sums are added to d_bias unless that is empty.
void activation_gradient(Activation activation, const Bf16* y, Bf16* d_y, std::size_t rows, std::size_t columns,
                         std::size_t begin, std::size_t end, std::span<float> d_bias);

}  // namespace lockstep::model::cpu
