/// \file
/// Operations whose results stay in the backend's memory, for tests on the host that want them as numbers at once.
#pragma once

#include <array>
#include <cstring>

#include "model/backend.hpp"
#include "model/model.hpp"
#include "model/optimizer.hpp"

namespace lockstep::model::test {

inline Tensor scalars(std::span<double> values) {
  return {values.data(), ElementType::float64, 1, static_cast<std::int64_t>(values.size())};
}

inline LossSums softmax_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& labels,
                                      const LossOptions& options) {
  std::array<double, 3> sums{};
  backend.softmax_cross_entropy(logits, labels, options, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .top5 = sums[2]};
}

inline LossSums softmax_cross_entropy(Backend& backend, const Tensor& logits, const Tensor& labels, double scale,
                                      bool want_gradient) {
  return softmax_cross_entropy(backend, logits, labels, {.scale = scale, .want_gradient = want_gradient});
}

inline LossSums mean_squared_error(Backend& backend, const Tensor& predictions, const Tensor& targets, double scale,
                                   bool want_gradient) {
  std::array<double, 3> sums{};
  backend.mean_squared_error(predictions, targets, {.scale = scale, .want_gradient = want_gradient}, scalars(sums));
  return {.loss = sums[0], .metric = sums[1], .top5 = sums[2]};
}

/// An update with an open gate, unless `obstacles` says otherwise.
inline void update(Backend& backend, const UpdateArenas& arenas, OptimizerKind kind, UpdateRule rule,
                   std::span<const UpdateSlice> slices, double gradient_squares = 1, double obstacles = 0) {
  const Tensor numbers{&rule, ElementType::uint8, 1, sizeof rule};
  backend.update(arenas, kind, rule.average_decay > 0, numbers, slices,
                 {scalars({&obstacles, 1}), scalars({&gradient_squares, 1})});
}

/// Sums of one batch alone; the gradients are in the model.
inline LossSums forward_backward(Model& model, const Batch& batch, double scale, Accumulate accumulate = Accumulate::no,
                                 const GradientReady& ready = {}) {
  const auto sums = [&] {
    model.write_ballot(std::array<double, kBallotSize>{});
    model.tally();
    return LossSums{.loss = model.ballot()[0], .metric = model.ballot()[1]};
  };
  const LossSums before = accumulate == Accumulate::yes ? sums() : LossSums{};
  model.stage(batch);
  model.forward_backward(scale, accumulate, ready);
  model.release_batch();
  const LossSums after = sums();
  return {.loss = after.loss - before.loss, .metric = after.metric - before.metric};
}

/// L2 and norm of what forward_backward left.
inline double finish_gradients(Model& model) {
  model.finish_gradients();
  model.post_results();
  return model.results().gradient_norm;
}

/// What is left of a step after forward_backward.
inline void finish_step(Model& model, const UpdateRule& rule) {
  model.write_ballot(std::array<double, kBallotSize>{});
  model.write_rule(rule);
  model.tally();
  model.finish_gradients();
  model.update();
  model.post_results();
}

}  // namespace lockstep::model::test
