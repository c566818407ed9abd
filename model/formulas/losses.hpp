/// \file
/// Pieces of the losses: one output of a squared error, one label of a binary cross-entropy; softmax in one pass over a
/// row that may be cut into parts (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"); a class of
/// a soft Dice loss.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "model/backend.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One output's loss of each kind, and its gradient.
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
  /// The absolute error's is 0 for a zero error; a NaN stays one.
  LOCKSTEP_HOST_DEVICE float gradient(float prediction, float target) const {
    const float error = prediction - target;
    if constexpr (kLoss == ErrorLoss::squared) return error * factor;
    constexpr float kLimit = kLoss == ErrorLoss::huber ? 1 : 0;
    return error > kLimit ? factor : error < -kLimit ? -factor : error * factor;
  }
};

/// Smooths a label's 0 or 1: (1 - smoothing) of it and smoothing of a half.
LOCKSTEP_HOST_DEVICE float smoothed_label(float target, float smoothing) {
  return target * (1 - smoothing) + 0.5f * smoothing;
}

/// A label's loss in nats, log(1 + exp(logit)) - target * logit, which overflows for no logit.
struct BinaryCrossEntropy {
  float factor;  ///< scale / labels
  float smoothing;

  /// Adds the loss; whether the prediction is right (never for a NaN); and whether the label is present and predicted.
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

/// Running softmax of a part of a row of logits: the first greatest one and sum of exp(logit - greatest). Empty parts
/// have no effect; a NaN or +infinity in the part makes the total NaN; logits of -infinity count as probability 0.
struct SoftmaxPart {
  float greatest = -kInfinity;
  float total = 0;
  std::int32_t index = INT32_MAX;  ///< index of the greatest; INT32_MAX while there is none
};

/// The base of the exponents: the greatest, or 0 while only -infinity has been seen, because infinity less itself is
/// NaN.
LOCKSTEP_HOST_DEVICE float softmax_base(float greatest) { return greatest == -kInfinity ? 0.0f : greatest; }

/// Takes in logits of increasing index: first their greatest …
LOCKSTEP_HOST_DEVICE void raise_greatest(SoftmaxPart& part, float greatest, std::int32_t index) {
  if (!(greatest > part.greatest)) return;
  part.total *= std::exp(part.greatest - softmax_base(greatest));
  part.greatest = greatest;
  part.index = index;
}
/// … then each of them.
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

/// The weights of a smoothed target: all of it for the label, or (1 - smoothing) for the label and smoothing / classes
/// for every class (Szegedy et al. 2016, section 7).
struct SoftTarget {
  double of_label = 1, of_each = 0;  ///< sum to 1; otherwise a loss would depend on the logits' distance from 0
};
LOCKSTEP_HOST_DEVICE SoftTarget soft_target(float smoothing, std::int64_t classes) {
  return {1 - static_cast<double>(smoothing), static_cast<double>(smoothing) / static_cast<double>(classes)};
}

/// Cross-entropy of a row in nats; `right` is the logit of its label. logits: the sum of all logits of the row, 0
/// without smoothing.
LOCKSTEP_HOST_DEVICE double cross_entropy_of(const SoftmaxPart& row, float right, const SoftTarget& target = {},
                                             double logits = 0) {
  const double whole = std::log(static_cast<double>(row.total));
  const auto greatest = static_cast<double>(row.greatest);
  if (target.of_each == 0) return whole + (greatest - static_cast<double>(right));
  return whole + (greatest - target.of_label * static_cast<double>(right) - target.of_each * logits);
}

/// Comparisons with a NaN are false, so a row that holds one may look right: its total reveals it.
LOCKSTEP_HOST_DEVICE bool is_correct(const SoftmaxPart& row, std::int32_t label) {
  return row.index == label && !std::isnan(row.total);
}

/// True if a class comes before the label in the order of the answers: greatest first, the first one among equals.
LOCKSTEP_HOST_DEVICE bool comes_before(float logit, std::int64_t index, float right, std::int32_t label) {
  return logit > right || (logit == right && index < label);
}
inline constexpr std::int64_t kTop = 5;
/// True if the label is among the first kTop answers: `before` classes come before it. As in is_correct() a row with a
/// NaN has no answers; nor has a label that is no class (right is NaN).
LOCKSTEP_HOST_DEVICE bool is_among_top(const SoftmaxPart& row, float right, std::int64_t before) {
  return before < kTop && !std::isnan(row.total) && !std::isnan(right);
}

/// The target's weights times the scale of the gradient.
struct ScaledTarget {
  float of_label, of_each;
};
LOCKSTEP_HOST_DEVICE ScaledTarget scaled(const SoftTarget& target, float scale) {
  return {static_cast<float>(target.of_label) * scale, static_cast<float>(target.of_each) * scale};
}
/// One element of the gradient: (softmax - target) * scale. share: scale / total of the row; target: scaled.
LOCKSTEP_HOST_DEVICE float softmax_gradient(float logit, const SoftmaxPart& row, float share,
                                            const ScaledTarget& target, bool is_label) {
  return std::exp(logit - softmax_base(row.greatest)) * share -
         (is_label ? target.of_label + target.of_each : target.of_each);
}

/// Added to both sides of a class's Dice coefficient, in positions: a class that a sample lacks costs nothing if
/// nothing is taken for it.
inline constexpr double kDiceSmoothing = 1;

/// One class of the soft Dice loss of a sample (Milletari et al. 2016, with the sums of Sudre et al. 2017), the mean
/// over all classes c of 1 - (2 sum(p_c t_c) + s) / (sum(p_c) + sum(t_c) + s). The sums run over the positions that
/// have a class; p is the softmax of a position's logits, t is 1 for its class and 0 for the others, s is
/// kDiceSmoothing.
struct DiceClass {
  double loss;      ///< its part of the mean
  double each;      ///< slope of the loss by the class's probability at any position …
  double of_label;  ///< … less this at its own positions
};
/// shared: sum(p t); sizes: sum(p) + sum(t).
LOCKSTEP_HOST_DEVICE DiceClass dice_class(double shared, double sizes, std::int64_t classes) {
  const double whole = sizes + kDiceSmoothing, common = 2 * shared + kDiceSmoothing;
  const double share = 1 / static_cast<double>(classes);
  return {share * (1 - common / whole), share * common / (whole * whole), share * 2 / whole};
}

/// Backend::combine_losses()
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
