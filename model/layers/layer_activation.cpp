#include "model/layers/layer_activation.hpp"

namespace lockstep::model {

namespace {

constexpr std::string_view kGelu = "gelu";

}  // namespace

LayerActivation layer_activation(std::string_view name) {
  if (name != kGelu) return parse_activation(name);
  LayerActivation activation;
  activation.gelu = true;
  return activation;
}

std::string_view name_of(const LayerActivation& activation) noexcept {
  return activation.gelu ? kGelu : name_of(activation.fused);
}

}  // namespace lockstep::model
