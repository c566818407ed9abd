/// \file
/// Optimisers as data: the rule and its numbers. The loops are in the backends. Formulas (g: gradient after clipping
/// and L2, w: weight, t: 1-based update count; all per element):
///   sgd       w -= lr g
///   momentum  v = mu v + g;  w -= lr v                                 (Polyak 1964; as in PyTorch, TensorFlow)
///   nesterov  v = mu v + g;  w -= lr (g + mu v)                        (Sutskever et al. 2013)
///   adam      m = b1 m + (1-b1) g; s = b2 s + (1-b2) g^2;
///             w -= lr (m / (1-b1^t)) / (sqrt(s / (1-b2^t)) + eps)      (Kingma & Ba 2015)
///   adamw     adam with decoupled weight decay                         (Loshchilov & Hutter 2019)
///   lars      r = trust |w| / (|g| + wd |w|) (1 where a norm is 0 or the slice is not decayed; wd there 0);
///             v = mu v + r lr (g + wd w);  w -= v                       (You, Gitman & Ginsburg 2017)
///   lamb      m, s as adam; u = (m / (1-b1^t)) / (sqrt(s / (1-b2^t)) + eps) + wd w;
///             w -= lr r u, r = |w| / |u| (1 as above)                   (You et al. 2020, algorithm 2, phi(z) = z)
/// Norms are over one parameter. In all rules but lars and lamb, decoupled weight decay is w -= lr * weight_decay * w
/// before the step (decayed slices).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/backend.hpp"

namespace lockstep::model {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double l2 = 0;             ///< L2 term of the loss: loss += l2/2 |w|^2, gradient += l2 w (decayed slices)
  double weight_decay = 0;   ///< decoupled weight decay
  double clip_norm = 0;      ///< > 0: scale the gradient to this global norm where it exceeds it (Pascanu et al. 2013)
  double clip_value = 0;     ///< > 0: clamp each element
  double trust = 0.001;      ///< lars
  double average_decay = 0;  ///< > 0: keep a moving average of the weights
  bool operator==(const OptimizerOptions&) const = default;
};

OptimizerKind parse_optimizer(std::string_view name);  ///< throws std::invalid_argument listing the valid names
std::string_view name_of(OptimizerKind kind) noexcept;
/// Number of state arenas of the rule: 0, 1 (velocity) or 2 (first and second moment).
int state_count(OptimizerKind kind) noexcept;
/// "velocity"; "first_moment", "second_moment": names in checkpoints.
std::string_view state_name(OptimizerKind kind, int index);
/// Decay of the average at update number `update` (0-based): min(decay, (1 + update) / (10 + update)), TensorFlow's
/// ExponentialMovingAverage with num_updates.
double average_decay_at(double decay, std::int64_t update) noexcept;
/// Returns the rule for update number `update` (0-based) at this learning rate.
UpdateRule update_rule(const OptimizerOptions& options, double learning_rate, std::int64_t update);

}  // namespace lockstep::model
