/// \file
/// What a layer makes of its products: an activation that the product's own operation applies, or GELU, which is an
/// operation by itself because its derivative needs what stands before it.
#pragma once

#include <string_view>

#include "model/operation_types.hpp"

namespace lockstep::model {

struct LayerActivation {
  Activation fused = Activation::none;
  bool gelu = false;

  LayerActivation() = default;
  LayerActivation(Activation activation) : fused(activation) {}  // NOLINT: a layer takes either
  bool is_none() const noexcept { return fused == Activation::none && !gelu; }
};

/// Of the words of activation_option() and "none"; throws std::invalid_argument for others.
LayerActivation layer_activation(std::string_view name);
std::string_view name_of(const LayerActivation& activation) noexcept;

}  // namespace lockstep::model
