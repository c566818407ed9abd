#include "model/loss.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::model {

namespace {

bool reads_all(const LossTerm& term, const Network& network) { return term.columns == network.sample_shape().outputs; }

std::int64_t rows_of(const Network& network, const ModelOptions& options) {
  return options.max_batch * network.positions();
}

bool has_dice(const ModelOptions& options) {
  return options.loss == LossKind::soft_dice ||
         std::ranges::any_of(options.losses, [](const LossTerm& term) { return term.kind == LossKind::soft_dice; });
}

std::int64_t dice_elements(const Network& network, const ModelOptions& options) {
  return has_dice(options) ? options.max_batch * dice_work(network.sample_shape().outputs) : 0;
}

/// Elements in the copy of the output's columns that a loss reads.
std::int64_t copied_elements(const LossTerm& term, const Network& network, const ModelOptions& options) {
  return rows_of(network, options) * term.columns;
}

/// Elements in the copy of target columns, for the largest loss that reads some, not all, columns of numbers; 0 if
/// there is none.
std::int64_t target_elements(const Network& network, const ModelOptions& options) {
  std::int64_t most = 0;
  for (const LossTerm& term : options.losses) {
    if (!takes_classes(term.kind) && !reads_all(term, network)) {
      most = std::max(most, rows_of(network, options) * term.columns);
    }
  }
  return most;
}

void require_fit(const Network& network, const ModelOptions& options) {
  const std::int64_t outputs = network.sample_shape().outputs;
  const auto fits = [&](const LossTerm& term) {
    const bool in_range = term.first >= 0 && term.columns > 0 && term.first + term.columns <= outputs;
    return in_range && (!takes_classes(term.kind) || term.columns == outputs) &&
           takes_classes(term.kind) == takes_classes(options.loss);
  };
  if (options.losses.size() > kMaxLosses || !std::ranges::all_of(options.losses, fits)) {
    throw std::invalid_argument("the losses do not fit the outputs of the network");
  }
}

}  // namespace

Loss::Loss(Backend& backend, const Network& network, const ModelOptions& options)
    : backend_(backend),
      outputs_(network.sample_shape().outputs),
      positions_(network.positions()),
      only_{.kind = options.loss, .first = 0, .columns = outputs_, .share = {}},
      losses_(options.losses),
      targets_(backend.memory(), ElementType::float32, static_cast<std::size_t>(target_elements(network, options))),
      dice_(backend.memory(), ElementType::float64, static_cast<std::size_t>(dice_elements(network, options))) {
  require_fit(network, options);
  if (!losses_.empty()) parts_.emplace(backend, losses_.size() * static_cast<std::size_t>(kLossSums));
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    shares_.push_back(losses_[i].share);
    first_.push_back(
        static_cast<std::size_t>(std::ranges::find(losses_, losses_[i].first, &LossTerm::first) - losses_.begin()));
    copies_.emplace_back(backend.memory(), backend.compute_type(),
                         static_cast<std::size_t>(copied_elements(options.losses[i], network, options)));
  }
}

std::size_t Loss::bytes(const Network& network, const ModelOptions& options, ElementType compute) {
  std::size_t bytes = static_cast<std::size_t>(target_elements(network, options)) * sizeof(float) +
                      static_cast<std::size_t>(dice_elements(network, options)) * sizeof(double);
  for (const LossTerm& term : options.losses) {
    bytes += static_cast<std::size_t>(copied_elements(term, network, options)) * size_of(compute);
  }
  return bytes;
}

void Loss::add(const Tensor& output, const Tensor& targets, const LossOptions& options, const Tensor& sums) {
  if (losses_.empty()) return add_one(only_, output, targets, options, sums);
  add_all(output, targets, options, sums);
}

void Loss::add_one(const LossTerm& term, const Tensor& output, const Tensor& targets, LossOptions options,
                   const Tensor& sums) {
  switch (term.kind) {
    case LossKind::softmax_cross_entropy:
      options.classes = outputs_;
      return backend_.softmax_cross_entropy(output, targets, options, sums);
    case LossKind::soft_cross_entropy:
      return backend_.soft_cross_entropy(output, targets, options, sums);
    case LossKind::soft_dice: {
      options.classes = outputs_;
      const Tensor work{dice_.data(), ElementType::float64, output.rows / positions_, dice_work(outputs_)};
      return backend_.soft_dice(output, targets, options, work, sums);
    }
    case LossKind::mean_squared_error:
    case LossKind::mean_absolute_error:
    case LossKind::huber:
      options.of_error = term.kind == LossKind::huber                 ? ErrorLoss::huber
                         : term.kind == LossKind::mean_absolute_error ? ErrorLoss::absolute
                                                                      : ErrorLoss::squared;
      return backend_.mean_error(output, targets, options, sums);
    case LossKind::binary_cross_entropy:
      return backend_.binary_cross_entropy(output, targets, options, sums);
  }
}

/// Each loss turns a copy of its columns into its gradient. Gradients of the same columns are then added.
void Loss::add_all(const Tensor& output, const Tensor& targets, const LossOptions& options, const Tensor& sums) {
  const auto copy = [&](std::size_t i) {
    return Tensor{copies_[i].data(), output.type, output.rows, losses_[i].columns};
  };
  const Tensor parts = parts_->tensor();
  backend_.fill_zero(parts);
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    backend_.copy_columns(output, losses_[i].first, copy(i), 0, losses_[i].columns);
    LossOptions of_one = options;
    of_one.scale *= losses_[i].share.loss;
    constexpr auto kWidth = static_cast<std::size_t>(kLossSums);
    add_one(losses_[i], copy(i), columns_of(losses_[i], targets), of_one, parts.slice({i * kWidth, kWidth}));
  }
  backend_.combine_losses(parts, shares_, sums);
  if (!options.want_gradient) return;
  if (output.columns != outputs_) backend_.fill_zero(output);  // zeros the padding
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (first_[i] != i) backend_.add(copy(i), copy(first_[i]));
  }
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (first_[i] == i) backend_.copy_columns(copy(i), 0, output, losses_[i].first, losses_[i].columns);
  }
}

Tensor Loss::columns_of(const LossTerm& term, const Tensor& targets) {
  if (takes_classes(term.kind) || term.columns == targets.columns) return targets;
  const Tensor own{targets_.data(), ElementType::float32, targets.rows, term.columns};
  backend_.copy_columns(targets, term.first, own, 0, term.columns);
  return own;
}

}  // namespace lockstep::model
