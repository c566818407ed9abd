/// \file
/// One element of an update: the formulas of update_rule.hpp in fp32.
#pragma once

#include <cmath>

#include "model/backend.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// The numbers of an update for the elements of one slice.
struct UpdateScalars {
  float rate;  ///< lars, lamb: includes the slice's ratio, see with_ratio()
  float factor, limit;
  float keep;   ///< factor of a weight for decoupled decay; 1 for lars and lamb
  float decay;  ///< decay of lars and lamb, which is part of their step
  float mu, beta1, beta2, epsilon, correction1, correction2;
  float average_keep, average_take;
};

LOCKSTEP_HOST_DEVICE constexpr bool keeps_velocity(OptimizerKind kind) {
  return kind == OptimizerKind::momentum || kind == OptimizerKind::nesterov || kind == OptimizerKind::lars;
}
LOCKSTEP_HOST_DEVICE constexpr bool keeps_moments(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lamb;
}
/// True if the rule needs norms of each slice, which an earlier pass computes (UpdateArenas::norms).
LOCKSTEP_HOST_DEVICE constexpr bool needs_norms(OptimizerKind kind) {
  return kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
}

/// rate_scale: UpdateSlice::rate_scale.
LOCKSTEP_HOST_DEVICE UpdateScalars update_scalars(OptimizerKind kind, const UpdateRule& rule, float factor,
                                                  bool decayed, float rate_scale = 1) {
  const float decay = decayed ? rule.weight_decay : 0;
  UpdateScalars scalars;
  scalars.rate = rule.learning_rate * rate_scale;
  scalars.factor = factor;
  scalars.limit = rule.clip_value > 0 ? rule.clip_value : HUGE_VALF;
  scalars.keep = needs_norms(kind) ? 1 : 1 - scalars.rate * decay;
  scalars.decay = decay;
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

// Norms. UpdateArenas::norms[2 s] is the sum of squares of the weights of slice s before the update. norms[2 s + 1] is
// the sum of squares of its clipped gradients (lars) or directions (lamb). Both are 0 for a slice that is not decayed,
// so its ratio is 1.

/// Returns the factor of a slice's learning rate.
LOCKSTEP_HOST_DEVICE float trust_ratio(OptimizerKind kind, const UpdateRule& rule, double weight_squares,
                                       double other_squares) {
  if (weight_squares == 0 || other_squares == 0) return 1;
  if (kind == OptimizerKind::lamb) return static_cast<float>(sqrt(weight_squares / other_squares));
  const double weights = sqrt(weight_squares), others = sqrt(other_squares);
  const double decay = static_cast<double>(rule.weight_decay);
  return static_cast<float>(static_cast<double>(rule.trust) * weights / (others + decay * weights));
}
LOCKSTEP_HOST_DEVICE UpdateScalars with_ratio(UpdateScalars scalars, float ratio) {
  scalars.rate *= ratio;
  return scalars;
}

/// Returns the gradient after clipping by norm and by value. A NaN stays a NaN.
LOCKSTEP_HOST_DEVICE float clipped(const UpdateScalars& scalars, float g) {
  g = g * scalars.factor;
  g = g > scalars.limit ? scalars.limit : g;
  return g < -scalars.limit ? -scalars.limit : g;
}

/// Adds g, a clipped gradient, to both moments. Returns the step for a learning rate of 1.
LOCKSTEP_HOST_DEVICE float moments_step(const UpdateScalars& scalars, float g, float& state1, float& state2) {
  const float m = scalars.beta1 * state1 + (1 - scalars.beta1) * g;
  const float s = scalars.beta2 * state2 + (1 - scalars.beta2) * g * g;
  state1 = m;
  state2 = s;
  return (m * scalars.correction1) / (std::sqrt(s * scalars.correction2) + scalars.epsilon);
}

/// First pass of lamb: returns the direction u, which replaces the gradient. The weight does not change.
LOCKSTEP_HOST_DEVICE float lamb_direction(const UpdateScalars& scalars, float w, float g, float& state1,
                                          float& state2) {
  return moments_step(scalars, clipped(scalars, g), state1, state2) + scalars.decay * w;
}

/// Returns the new weight. Updates state1 and state2 if the rule has them. For lamb, g is the direction from the first
/// pass, which has already updated the states.
template <OptimizerKind kKind>
LOCKSTEP_HOST_DEVICE float updated(const UpdateScalars& scalars, float w, float g, float& state1, float& state2) {
  if constexpr (kKind == OptimizerKind::lamb) {
    return w - scalars.rate * g;
  } else {
    g = clipped(scalars, g);
    if constexpr (kKind == OptimizerKind::lars) {
      const float v = scalars.mu * state1 + scalars.rate * (g + scalars.decay * w);
      state1 = v;
      return w - v;
    }
    w = w * scalars.keep;
    if constexpr (kKind == OptimizerKind::sgd) w -= scalars.rate * g;
    if constexpr (keeps_velocity(kKind)) {
      const float v = scalars.mu * state1 + g;
      state1 = v;
      w -= scalars.rate * (kKind == OptimizerKind::nesterov ? g + scalars.mu * v : v);
    }
    if constexpr (keeps_moments(kKind)) w -= scalars.rate * moments_step(scalars, g, state1, state2);
    return w;
  }
}

LOCKSTEP_HOST_DEVICE float averaged(const UpdateScalars& scalars, float average, float w) {
  return scalars.average_keep * average + scalars.average_take * w;
}

/// Returns the new value of a statistic, which moves towards g, the value of this step. Clipping, decay and rules do
/// not apply. The average of a statistic is the statistic itself.
LOCKSTEP_HOST_DEVICE float updated_statistic(const UpdateRule& rule, float w, float g) {
  return rule.statistics_decay * w + (1 - rule.statistics_decay) * g;
}

}  // namespace lockstep::model::formulas
