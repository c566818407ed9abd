/// \file
/// One element of an update: the formulas of optimizer.hpp in fp32.
#pragma once

#include <cmath>

#include "model/backend.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// The numbers of an update as its elements need them.
struct UpdateScalars {
  float rate, factor, limit, keep;
  float mu, beta1, beta2, epsilon, correction1, correction2;
  float average_keep, average_take;
};

LOCKSTEP_HOST_DEVICE UpdateScalars update_scalars(const UpdateRule& rule, float factor, bool decayed) {
  UpdateScalars scalars;
  scalars.rate = rule.learning_rate;
  scalars.factor = factor;
  scalars.limit = rule.clip_value > 0 ? rule.clip_value : HUGE_VALF;
  scalars.keep = decayed ? 1 - rule.learning_rate * rule.weight_decay : 1;
  scalars.mu = rule.momentum;
  scalars.beta1 = rule.beta1;
  scalars.beta2 = rule.beta2;
  scalars.epsilon = rule.epsilon;
  scalars.correction1 = 1 / rule.bias_correction1;
  scalars.correction2 = 1 / rule.bias_correction2;
  scalars.average_keep = rule.average_decay;
  scalars.average_take = 1 - rule.average_decay;
  return scalars;
}

LOCKSTEP_HOST_DEVICE constexpr bool keeps_velocity(OptimizerKind kind) {
  return kind == OptimizerKind::momentum || kind == OptimizerKind::nesterov;
}
LOCKSTEP_HOST_DEVICE constexpr bool keeps_moments(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
}

/// The new weight; state1 and state2 are read and written where the rule keeps them. A NaN passes every clip.
template <OptimizerKind kKind>
LOCKSTEP_HOST_DEVICE float updated(const UpdateScalars& scalars, float w, float g, float& state1, float& state2) {
  g = g * scalars.factor;
  g = g > scalars.limit ? scalars.limit : g;
  g = g < -scalars.limit ? -scalars.limit : g;
  w = w * scalars.keep;
  if constexpr (kKind == OptimizerKind::sgd) w -= scalars.rate * g;
  if constexpr (keeps_velocity(kKind)) {
    const float v = scalars.mu * state1 + g;
    state1 = v;
    w -= scalars.rate * (kKind == OptimizerKind::nesterov ? g + scalars.mu * v : v);
  }
  if constexpr (keeps_moments(kKind)) {
    const float m = scalars.beta1 * state1 + (1 - scalars.beta1) * g;
    const float s = scalars.beta2 * state2 + (1 - scalars.beta2) * g * g;
    state1 = m;
    state2 = s;
    w -= scalars.rate * (m * scalars.correction1) / (std::sqrt(s * scalars.correction2) + scalars.epsilon);
  }
  return w;
}

LOCKSTEP_HOST_DEVICE float averaged(const UpdateScalars& scalars, float average, float w) {
  return scalars.average_keep * average + scalars.average_take * w;
}

}  // namespace lockstep::model::formulas
