#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/backend.hpp"

namespace lockstep::model {

namespace {

constexpr std::array<std::pair<Activation, std::string_view>, 4> kNames{{{Activation::none, "none"},
                                                                         {Activation::relu, "relu"},
                                                                         {Activation::tanh, "tanh"},
                                                                         {Activation::sigmoid, "sigmoid"}}};

}  // namespace

Activation parse_activation(std::string_view name) {
  for (const auto& [activation, text] : kNames) {
    if (text == name) return activation;
  }
  std::string valid;
  for (const auto& [activation, text] : kNames) valid += fmt::format("{}{}", valid.empty() ? "" : ", ", text);
  throw std::invalid_argument(fmt::format("unknown activation '{}'; valid: {}", name, valid));
}

std::string_view name_of(Activation activation) noexcept {
  for (const auto& [known, text] : kNames) {
    if (known == activation) return text;
  }
  return "unknown";
}

}  // namespace lockstep::model
