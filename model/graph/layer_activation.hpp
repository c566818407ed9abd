/// \file
/// The activation after a layer's product. Either the operation of the product applies it, or it is GELU, a separate
/// operation because its derivative needs its input.
#pragma once

#include <string>
#include <string_view>

#include "model/network_options.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model {

struct LayerActivation {
  Activation fused = Activation::none;
  bool gelu = false;

  LayerActivation() = default;
  LayerActivation(Activation activation) : fused(activation) {}  // NOLINT: a layer takes either
  bool is_none() const noexcept { return fused == Activation::none && !gelu; }
};

/// Parses an allowed value of call_activation(). Throws std::invalid_argument for others.
LayerActivation layer_activation(std::string_view name);
std::string_view name_of(const LayerActivation& activation) noexcept;
/// Returns ", relu" for the plan's description of a layer; "" without an activation.
std::string text_behind(const LayerActivation& activation);
/// The argument "activation" of operations, for layer_activation().
NetworkOption call_activation();

}  // namespace lockstep::model
