/// \file
/// Linear maps in bf16 of which some or all values are stored in bf16 (Holds::narrow). Tiles of sums get bias and
/// activation and are rounded before they are written; gradients are prepared in bf16. Weights, biases and their
/// gradients are fp32. At least kThin outputs; no extent may be zero.
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

/// Gradients as in Backend::linear_backward. With z present, x is gelu(z), d_x becomes the gradient of z, and its
/// column sums are added to d_z_sums (may be absent).
struct Bf16LinearBackward {
  const LinearBackwardOperands& operands;
  Activation activation = Activation::none;
  Accumulate accumulate = Accumulate::no;  ///< for d_w; d_bias is always added to
  Tensor z = {}, d_z_sums = {};
};
void bf16_linear_backward(const Bf16LinearBackward& map, PanelMemory& memory, ThreadPool& threads, Bf16Unit unit);

/// d_y becomes the gradient before the activation, given y, both in bf16, for columns [begin, end) of `rows` rows. Its
/// column sums are added to d_bias unless that is empty.
void activation_gradient(Activation activation, const Bf16* y, Bf16* d_y, std::size_t rows, std::size_t columns,
                         std::size_t begin, std::size_t end, std::span<float> d_bias);

}  // namespace lockstep::model::cpu
