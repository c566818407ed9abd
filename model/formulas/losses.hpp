/// \file
/// Parts of the losses: the error of one output, one label of a binary cross-entropy, one class of a soft Dice loss,
/// and softmax in one pass over a row that may be split into parts (Milakov & Gimelshein 2018, "Online normalizer
/// calculation for softmax").
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "model/backend.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Loss of one output, of any kind, and its gradient.
template <ErrorLoss kLoss>
struct OutputError {
  static constexpr double kSlope = kLoss == ErrorLoss::squared ? 2 : 1;
  float factor;  ///< kSlope * scale / outputs

  /// Adds the loss, and the absolute error as the metric.
  LOCKSTEP_HOST_DEVICE void add(float prediction, float target, LossSums& sums) const {
    const double error = static_cast<double>(prediction) - static_cast<double>(target);
    const double magnitude = error < 0 ? -error : error;
    if constexpr (kLoss == ErrorLoss::squared) {
      sums.loss += error * error;
    } else if constexpr (kLoss == ErrorLoss::absolute) {
      sums.loss += magnitude;
    } else {
      sums.loss += magnitude > 1 ? magnitude - 0.5 : 0.5 * error * error;
    }
    sums.metric += magnitude;
  }
  /// The gradient of the absolute error is 0 for a zero error; a NaN stays a NaN.
  LOCKSTEP_HOST_DEVICE float gradient(float prediction, float target) const {
    const float error = prediction - target;
    if constexpr (kLoss == ErrorLoss::squared) return error * factor;
    constexpr float kLimit = kLoss == ErrorLoss::huber ? 1 : 0;
    return error > kLimit ? factor : error < -kLimit ? -factor : error * factor;
  }
};

/// Smooths a label of 0 or 1: (1 - smoothing) * label + smoothing / 2.
LOCKSTEP_HOST_DEVICE float smoothed_label(float target, float smoothing) {
  return target * (1 - smoothing) + 0.5f * smoothing;
}

/// Loss of one label in nats, log(1 + exp(logit)) - target * logit, without overflow for any logit.
struct BinaryCrossEntropy {
  float factor;  ///< scale / labels
  float smoothing;

  /// Adds the loss; 1 to the metric if the prediction is correct (never for a NaN); 1 to found if the label is 1 and
  /// predicted.
  LOCKSTEP_HOST_DEVICE void add(float logit, float target, LossSums& sums) const {
    const auto wide = static_cast<double>(logit);
    const float magnitude = logit < 0 ? -logit : logit;
    sums.loss += static_cast<double>(std::log1p(std::exp(-magnitude))) + (wide > 0 ? wide : 0) -
                 static_cast<double>(smoothed_label(target, smoothing)) * wide;
    const bool said = logit > 0, there = target > 0.5f;
    sums.metric += said == there && !std::isnan(logit) ? 1 : 0;
    sums.found += said && there ? 1 : 0;
  }
  /// exp() of a large number is infinite, and 1 over that is 0.
  LOCKSTEP_HOST_DEVICE float gradient(float logit, float target) const {
    return (1 / (1 + std::exp(-logit)) - smoothed_label(target, smoothing)) * factor;
  }
};

/// Running softmax of a part of a row of logits: the first greatest logit, and the sum of exp(logit - greatest). Empty
/// parts have no effect; a NaN or +infinity in the part makes the total NaN; logits of -infinity count as probability
/// 0.
struct SoftmaxPart {
  float greatest = -kInfinity;
  float total = 0;
  std::int32_t index = INT32_MAX;  ///< index of the greatest; INT32_MAX while there is none
};

/// Returns the base of the exponents: the greatest logit, or 0 if all logits so far are -infinity, because infinity
/// minus infinity is NaN.
LOCKSTEP_HOST_DEVICE float softmax_base(float greatest) { return greatest == -kInfinity ? 0.0f : greatest; }

/// Raises the greatest logit, with increasing index. Call it before add_logit() of these logits.
LOCKSTEP_HOST_DEVICE void raise_greatest(SoftmaxPart& part, float greatest, std::int32_t index) {
  if (!(greatest > part.greatest)) return;
  part.total *= std::exp(part.greatest - softmax_base(greatest));
  part.greatest = greatest;
  part.index = index;
}
/// Adds a logit that is not greater than part.greatest.
LOCKSTEP_HOST_DEVICE void add_logit(SoftmaxPart& part, float logit) {
  part.total += std::exp(logit - softmax_base(part.greatest));
}

/// Merges two parts; their indices may interleave.
LOCKSTEP_HOST_DEVICE SoftmaxPart merge(const SoftmaxPart& a, const SoftmaxPart& b) {
  SoftmaxPart sum;
  const bool a_wins = a.greatest > b.greatest || (a.greatest == b.greatest && a.index < b.index);
  sum.greatest = a_wins ? a.greatest : b.greatest;
  sum.index = a_wins ? a.index : b.index;
  const float base = softmax_base(sum.greatest);
  sum.total = a.total * std::exp(a.greatest - base) + b.total * std::exp(b.greatest - base);
  return sum;
}

/// Weights of a smoothed target: 1 - smoothing for the label, and smoothing / classes for every class (Szegedy et al.
/// 2016, section 7).
struct SoftTarget {
  double of_label = 1, of_each = 0;  ///< sum 1: a constant added to all logits changes no loss
};
LOCKSTEP_HOST_DEVICE SoftTarget soft_target(float smoothing, std::int64_t classes) {
  return {1 - static_cast<double>(smoothing), static_cast<double>(smoothing) / static_cast<double>(classes)};
}

/// Returns the cross-entropy of a row in nats. right: logit of its label. logits: sum of all logits of the row; 0
/// without smoothing.
LOCKSTEP_HOST_DEVICE double cross_entropy_of(const SoftmaxPart& row, float right, const SoftTarget& target = {},
                                             double logits = 0) {
  const double whole = std::log(static_cast<double>(row.total));
  const auto greatest = static_cast<double>(row.greatest);
  if (target.of_each == 0) return whole + (greatest - static_cast<double>(right));
  return whole + (greatest - target.of_label * static_cast<double>(right) - target.of_each * logits);
}

/// True if the label has the first greatest logit. A row with a NaN may seem correct, because comparisons with NaN are
/// false, so its total is checked, too.
LOCKSTEP_HOST_DEVICE bool is_correct(const SoftmaxPart& row, std::int32_t label) {
  return row.index == label && !std::isnan(row.total);
}

/// True if a class ranks before the label: it has a greater logit, or an equal logit and a smaller index.
LOCKSTEP_HOST_DEVICE bool comes_before(float logit, std::int64_t index, float right, std::int32_t label) {
  return logit > right || (logit == right && index < label);
}
inline constexpr std::int64_t kTop = 5;
/// True if the label is among the first kTop classes. before: number of classes that rank before it. False for a row
/// with a NaN, and for a label that is no class (right is NaN).
LOCKSTEP_HOST_DEVICE bool is_among_top(const SoftmaxPart& row, float right, std::int64_t before) {
  return before < kTop && !std::isnan(row.total) && !std::isnan(right);
}

/// Weights of the target times the scale of the gradient.
struct ScaledTarget {
  float of_label, of_each;
};
LOCKSTEP_HOST_DEVICE ScaledTarget scaled(const SoftTarget& target, float scale) {
  return {static_cast<float>(target.of_label) * scale, static_cast<float>(target.of_each) * scale};
}
/// Returns one element of the gradient, (softmax - target) * scale. share: scale / total of the row.
LOCKSTEP_HOST_DEVICE float softmax_gradient(float logit, const SoftmaxPart& row, float share,
                                            const ScaledTarget& target, bool is_label) {
  return std::exp(logit - softmax_base(row.greatest)) * share -
         (is_label ? target.of_label + target.of_each : target.of_each);
}

/// Added to numerator and denominator of the Dice coefficient of a class, in positions. A class that a sample lacks
/// then costs nothing if its probabilities are zero.
inline constexpr double kDiceSmoothing = 1;

/// One class of the soft Dice loss of a sample (Milletari et al. 2016, with the sums of Sudre et al. 2017), the mean
/// over all classes c of 1 - (2 sum(p_c t_c) + s) / (sum(p_c) + sum(t_c) + s). The sums run over the positions that
/// have a class; p is the softmax of a position's logits, t is 1 for its class and 0 for the others, s is
/// kDiceSmoothing.
struct DiceClass {
  double loss;      ///< part of the mean over the classes
  double each;      ///< derivative of the loss by the probability of the class at any position ...
  double of_label;  ///< ... minus this at positions of the class
};
/// shared: sum(p t). sizes: sum(p) + sum(t).
LOCKSTEP_HOST_DEVICE DiceClass dice_class(double shared, double sizes, std::int64_t classes) {
  const double whole = sizes + kDiceSmoothing, common = 2 * shared + kDiceSmoothing;
  const double share = 1 / static_cast<double>(classes);
  return {share * (1 - common / whole), share * common / (whole * whole), share * 2 / whole};
}

/// Implements Backend::combine_losses().
LOCKSTEP_HOST_DEVICE void combine_losses(const double* parts, const LossShare* shares, std::size_t count,
                                         double* sums) {
  for (std::size_t i = 0; i < count; ++i) {
    const double* const part = parts + i * static_cast<std::size_t>(kLossSums);
    sums[0] += shares[i].loss * part[0];
    sums[1] += shares[i].metric * part[1];
    sums[2] += shares[i].metric * part[2] + shares[i].accuracy * part[1];
    sums[static_cast<std::size_t>(kLossSums) + i] += part[0];
  }
}

}  // namespace lockstep::model::formulas
