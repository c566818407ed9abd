/// \file
/// The activation behind a layer's product: one that the product's own operation applies, or GELU, which is a separate
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

/// Parses a word of call_activation(); throws std::invalid_argument for others.
LayerActivation layer_activation(std::string_view name);
std::string_view name_of(const LayerActivation& activation) noexcept;
/// For the description of a layer in the plan: ", relu", or nothing without an activation.
std::string text_behind(const LayerActivation& activation);
/// The argument of an operation that layer_activation() reads.
NetworkOption call_activation();

}  // namespace lockstep::model
