#include "model/update_rule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::array<std::pair<OptimizerKind, std::string_view>, 7> kNames{{{OptimizerKind::sgd, "sgd"},
                                                                            {OptimizerKind::momentum, "momentum"},
                                                                            {OptimizerKind::nesterov, "nesterov"},
                                                                            {OptimizerKind::adam, "adam"},
                                                                            {OptimizerKind::adamw, "adamw"},
                                                                            {OptimizerKind::lars, "lars"},
                                                                            {OptimizerKind::lamb, "lamb"}}};

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  for (const auto& [kind, text] : kNames) {
    if (text == name) return kind;
  }
  std::string valid;
  for (const auto& [kind, text] : kNames) valid += fmt::format("{}{}", valid.empty() ? "" : ", ", text);
  throw std::invalid_argument(fmt::format("unknown optimiser '{}'; valid: {}", name, valid));
}

std::string_view name_of(OptimizerKind kind) noexcept {
  for (const auto& [known, text] : kNames) {
    if (known == kind) return text;
  }
  return "unknown";
}

int state_count(OptimizerKind kind) noexcept {
  switch (kind) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::momentum:
    case OptimizerKind::nesterov:
    case OptimizerKind::lars:
      return 1;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
    case OptimizerKind::lamb:
      return 2;
  }
  return 0;
}

std::string_view state_name(OptimizerKind kind, int index) {
  if (index < 0 || index >= state_count(kind)) {
    throw std::invalid_argument(
        fmt::format("{} keeps {} state arenas, not {}", name_of(kind), state_count(kind), index + 1));
  }
  if (state_count(kind) == 1) return "velocity";
  return index == 0 ? "first_moment" : "second_moment";
}

double average_decay_at(double decay, std::int64_t update) noexcept {
  return std::min(decay, static_cast<double>(1 + update) / static_cast<double>(10 + update));
}

UpdateRule update_rule(const OptimizerOptions& options, double learning_rate, std::int64_t update) {
  UpdateRule rule;
  rule.learning_rate = static_cast<float>(learning_rate);
  rule.momentum = static_cast<float>(options.momentum);
  rule.beta1 = static_cast<float>(options.beta1);
  rule.beta2 = static_cast<float>(options.beta2);
  rule.epsilon = static_cast<float>(options.epsilon);
  // Uses the betas rounded to float, as the moments do: 1 - 0.999f has a relative error of 1.3e-5.
  const auto count = static_cast<double>(update + 1);
  rule.bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(rule.beta1), count));
  rule.bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(rule.beta2), count));
  rule.weight_decay = static_cast<float>(options.weight_decay);
  rule.trust = static_cast<float>(options.trust);
  rule.clip_norm = options.clip_norm;
  rule.clip_value = static_cast<float>(options.clip_value);
  if (options.average_decay > 0)
    rule.average_decay = static_cast<float>(average_decay_at(options.average_decay, update));
  return rule;
}

}  // namespace lockstep::model
