/// \file
/// Operations that return their sums on the host at once, for tests.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "model/backend.hpp"
#include "model/training/training.hpp"

namespace lockstep::model::test {

inline Tensor scalars(std::span<double> values) {
  return {values.data(), ElementType::float64, 1, static_cast<std::int64_t>(values.size())};
}

inline LossSums softmax_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& labels,
                                      const LossOptions& options) {
  std::array<double, 3> sums{};
  backend.softmax_cross_entropy(logits, labels, options, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .found = sums[2]};
}

inline LossSums softmax_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& labels, double scale,
                                      bool want_gradient) {
  return softmax_cross_entropy(backend, logits, labels, {.scale = scale, .want_gradient = want_gradient});
}

inline LossSums mean_error(Backend& backend, const Tensor& predictions, const Tensor& targets,
                           const LossOptions& options) {
  std::array<double, 3> sums{};
  backend.mean_error(predictions, targets, options, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .found = sums[2]};
}

inline LossSums mean_squared_error(Backend& backend, const Tensor& predictions, const Tensor& targets, double scale,
                                   bool want_gradient) {
  return mean_error(backend, predictions, targets, {.scale = scale, .want_gradient = want_gradient});
}

inline LossSums binary_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& targets,
                                     const LossOptions& options) {
  std::array<double, 3> sums{};
  backend.binary_cross_entropy(logits, targets, options, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .found = sums[2]};
}

inline LossSums soft_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& targets,
                                   const LossOptions& options) {
  std::array<double, 3> sums{};
  backend.soft_cross_entropy(logits, targets, options, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .found = sums[2]};
}

/// positions: number per sample.
inline LossSums soft_dice(Backend& backend, const Tensor& logits, const Tensor& labels, std::int64_t positions,
                          const LossOptions& options) {
  std::array<double, 3> sums{};
  const std::int64_t samples = logits.rows / positions, numbers = dice_work(options.classes_of(logits));
  std::vector<double> work(static_cast<std::size_t>(samples * numbers));
  backend.soft_dice(logits, labels, options, {work.data(), ElementType::float64, samples, numbers}, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .found = sums[2]};
}

/// Makes an update, unless `non_finite` forbids it.
inline void update(Backend& backend, const UpdateArenas& arenas, OptimizerKind kind, UpdateRule rule,
                   std::span<const UpdateSlice> slices, double gradient_squares = 1, double non_finite = 0) {
  const Tensor numbers{&rule, ElementType::uint8, 1, sizeof rule};
  backend.update(arenas, kind, rule.average_decay > 0 ? Averaging::yes : Averaging::no, numbers, slices,
                 {scalars({&non_finite, 1}), scalars({&gradient_squares, 1})});
}

/// Training objects with initialised parameters.
struct SeededTraining : Training {
  SeededTraining(Backend& backend, const Network& network, const ModelOptions& options,
                 const ParameterStateOptions& state_options = {}, std::uint64_t seed = 7)
      : Training(backend, network, options, state_options) {
    parameters.initialize(seed);
  }
};

/// Runs forward and backward of one batch and returns its sums. The gradients are in the training.
inline LossSums forward_backward(Training& training, const Batch& batch, double scale,
                                 Accumulate accumulate = Accumulate::no, const GradientReady& ready = {}) {
  Model& model = training.model;
  const auto sums = [&] {
    const auto now = model.loss_sums().elements<double>();
    return LossSums{.loss = now[0], .metric = now[1]};
  };
  const LossSums before = accumulate == Accumulate::yes ? sums() : LossSums{};
  model.stage(batch);
  model.backward(model.forward(scale, accumulate), ready);
  model.release_batch();
  const LossSums after = sums();
  return {.loss = after.loss - before.loss, .metric = after.metric - before.metric};
}

/// Returns the norm of the gradients, from the status.
inline double gradient_norm(const Training& training) { return std::sqrt(training.status.posted().gradient_squares); }

/// Adds L2 to the gradients of forward_backward, and returns their norm.
inline double finish_gradients(Training& training) {
  training.optimizer.finish_gradients();
  training.status.post();
  return gradient_norm(training);
}

/// Completes a step after forward_backward.
inline void finish_step(Training& training, const UpdateRule& rule, const StepStatus& own = {}) {
  training.status.write(own);
  training.optimizer.prepare(rule);
  training.status.report_loss(training.model.loss_sums());
  training.optimizer.finish_gradients();
  training.optimizer.update();
  training.status.post();
}

}  // namespace lockstep::model::test
