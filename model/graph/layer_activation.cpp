#include "model/graph/layer_activation.hpp"

#include <fmt/format.h>

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

std::string text_behind(const LayerActivation& activation) {
  return activation.is_none() ? "" : fmt::format(", {}", name_of(activation));
}

NetworkOption call_activation() {
  return {.name = "activation",
          .value = "none",
          .value_name = "NAME",
          .help = "applied to the result",
          .words = {"none", "relu", "tanh", "sigmoid", std::string(kGelu)}};
}

std::string_view name_of(const LayerActivation& activation) noexcept {
  return activation.gelu ? kGelu : name_of(activation.fused);
}

}  // namespace lockstep::model
