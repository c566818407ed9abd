/// \file
/// Passes over arrays, in fp32, for one thread on a part of the data. The compiler vectorises them for several
/// instruction sets, and the program selects the best one when it starts. Two source files have different
/// floating-point rules. element_loops.cpp may reorder sums (-ffast-math without -ffinite-math-only, because checks
/// rely on NaN and infinity). activation_loops.cpp may not, because the compiler would remove the argument reduction of
/// exp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/backend.hpp"

namespace lockstep::model::cpu {

/// Returns the instruction set of the loops on this machine: "x86-64-v4", "x86-64-v3" or "baseline".
const char* loop_instruction_set() noexcept;

// ---- element_loops.cpp ----

/// out[i] = in[i] * scale + shift
void convert(std::span<const std::uint8_t> in, InputTransform transform, std::span<float> out);
void convert(std::span<const float> in, InputTransform transform, std::span<float> out);
void convert(std::span<const double> in, InputTransform transform, std::span<float> out);

/// Squares and sums in double: no overflow, and a relative error of 2^-53 per addition.
double sum_of_squares(std::span<const float> x);

/// Sum of squares of the gradients after both clips.
double sum_of_clipped_squares(std::span<const float> gradients, const UpdateRule& rule, float gradient_factor);

/// y[i] += factor * x[i]
void add_scaled(std::span<const float> x, float factor, std::span<float> y);

/// sums[o] += sum over the rows of x [rows, columns], for the columns [begin, end).
void add_column_sums(std::span<const float> x, std::size_t columns, std::size_t begin, std::size_t end,
                     std::span<float> sums);

/// One pass over `columns` columns [begin, end) of all rows: d_y becomes the gradient before the activation (given y),
/// and its column sums are added to d_bias unless that is empty.
void activation_gradient(Activation activation, std::span<const float> y, std::span<float> d_y, std::size_t columns,
                         std::size_t begin, std::size_t end, std::span<float> d_bias);

/// Returns loss, the sum of cost(p - t) / outputs, and metric, the sum of |p - t| / outputs. With gradient, p becomes
/// slope of the cost / outputs * scale. Ignores LossOptions::weights.
LossSums mean_error(std::span<float> predictions, std::span<const float> targets, std::size_t outputs,
                    const LossOptions& options);

/// Arrays of one slice of an update. State and average are empty if the rule has none.
struct UpdateSpans {
  std::span<float> parameters;
  std::span<float> gradients;  ///< lamb overwrites them with its direction; other rules only read them
  std::span<float> state1, state2, average;
};
struct Update {
  OptimizerKind kind = OptimizerKind::sgd;
  Averaging averaging = Averaging::no;
  UpdateRule rule;
  float gradient_factor = 1;  ///< multiplies the gradient first
  bool decayed = false;       ///< UpdateSlice::decayed
  float rate_scale = 1;       ///< UpdateSlice::rate_scale
  float ratio = 1;            ///< lars, lamb: trust ratio of the slice
};
/// Clip, decay, rule and average in one pass. Moves 12 (sgd) to 36 (adam with average) bytes per parameter.
void update(const UpdateSpans& spans, const Update& update);
/// First pass of lamb: updates the moments, and overwrites the gradients with the direction.
void lamb_directions(const UpdateSpans& spans, const Update& update);
/// Moves statistics towards the values in the gradients, and copies the statistics to their average.
void update_statistics(const UpdateSpans& spans, const UpdateRule& rule);

// ---- activation_loops.cpp ----

/// y [rows, columns] = act(y + bias); bias [columns] may be empty.
void add_bias_and_activate(std::span<float> y, std::size_t columns, std::span<const float> bias, Activation activation);

/// y[i] = f(x[i]); y may be x.
void apply(const Elementwise& f, std::span<const float> x, std::span<float> y);
/// d_x[i] = d_y[i] f'; `read` as slope_reads() says. d_x may be d_y.
void apply_slope(const Elementwise& f, std::span<const float> read, std::span<const float> d_y, std::span<float> d_x);

/// Cross-entropy of the rows of z [rows, classes] with labels, in nats. metric counts rows whose first greatest logit
/// is the label; found (without gradient) counts rows whose label is among the first five. With gradient, z becomes
/// (softmax(z) - target) * scale.
LossSums cross_entropy(std::span<float> z, std::size_t classes, std::span<const std::int32_t> labels,
                       const LossOptions& options);

/// Binary cross-entropy of logits z [rows, labels], in nats; loss, metric and found are divided by `labels`. With
/// gradient, z becomes (sigmoid(z) - target) / labels * scale.
LossSums binary_cross_entropy(std::span<float> z, std::span<const float> targets, std::size_t labels,
                              const LossOptions& options);

/// Cross-entropy of the rows of z [rows, classes] with rows of probabilities, in nats; metric and found as in
/// cross_entropy(), with the first greatest probability as the label. With gradient, z becomes (softmax(z) * sum of the
/// probabilities - probabilities) * scale.
LossSums soft_cross_entropy(std::span<float> z, std::span<const float> targets, std::size_t classes,
                            const LossOptions& options);

/// Soft Dice loss of one sample, z [positions, columns], times its number of positions. metric counts positions whose
/// first greatest logit is the label. With gradient, z becomes slope of the loss * positions * scale. work: two numbers
/// per class.
LossSums soft_dice(std::span<float> z, std::size_t columns, std::size_t classes, std::span<const std::int32_t> labels,
                   const LossOptions& options, std::span<double> work);

/// y[i] = exp(x[i]) with a relative error below 2e-7; 0 below -87.7, saturating at 2.4e38 above 88.37; NaN stays NaN.
void exp_each(std::span<const float> x, std::span<float> y);

}  // namespace lockstep::model::cpu
