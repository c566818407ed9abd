#include "model/batch.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "model/operation_checks.hpp"

namespace lockstep::model {

namespace {

std::int64_t stored_features(const Network& network, const ModelOptions& options) {
  return options.augmentation ? options.augmentation->in.elements() : network.sample_shape().features;
}

/// Number of columns of y: one for each row of the output, or as many as the row has outputs.
std::int64_t target_columns(const Network& network, LossKind loss) {
  return network.positions() * (takes_classes(loss) ? 1 : network.sample_shape().outputs);
}

/// Columns of the weights: one for each row of the output. Tokens have no weights.
std::int64_t weight_columns(const Network& network) { return network.positions(); }

StageBytes bytes_of_slot(const Network& network, const ModelOptions& options) {
  const auto bytes = [&](std::int64_t per_sample, std::size_t size) {
    return static_cast<std::size_t>(options.max_batch * per_sample) * size;
  };
  return {.x = bytes(stored_features(network, options), size_of(options.sample_type)),
          .y = bytes(target_columns(network, options.loss), 4),  // int32 or float32
          .keys = bytes(1, sizeof(std::uint64_t)),
          .weights = options.weighted ? bytes(weight_columns(network), sizeof(float)) : 0};
}

}  // namespace

BatchStage::BatchStage(Backend& backend, const Network& network, const ModelOptions& options, Purpose purpose)
    : backend_(backend),
      network_(network),
      options_(options),
      purpose_(purpose),
      // Not zeroed: every element is written before it is read, and pages that no batch reaches stay untouched.
      converted_(backend.memory(), ElementType::uint8, converted_bytes(network, options, backend.compute_type())) {
  backend.reserve_stages(evaluation_slot() + 1, bytes_of_slot(network, options));
}

/// Converted samples need memory unless the backend can read every batch in place. This depends on the batches, so the
/// memory is always planned. On a host it becomes resident only when it is used.
std::size_t BatchStage::converted_bytes(const Network& network, const ModelOptions& options, ElementType compute) {
  if (network.sample_shape().tokens) return 0;
  return static_cast<std::size_t>(options.max_batch * network.sample_shape().features) * size_of(compute);
}

std::size_t BatchStage::slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose) {
  const StageBytes slot = bytes_of_slot(network, options);
  return static_cast<std::size_t>(purpose == Purpose::training ? kTrainingSlots + 1 : 1) *
         (slot.x + slot.y + slot.keys + slot.weights);
}

Batch BatchStage::stage(int slot, Batch batch) {
  const std::int64_t count = batch.count();
  if (count < 0 || count > options_.max_batch) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples: this model takes 0 to {}", count, options_.max_batch));
  }
  if (batch.first_sequence < 0 || batch.first_sequence + count > options_.most_sequences()) {
    throw std::invalid_argument(fmt::format("a batch of sequences {} to {}: this model has {}", batch.first_sequence,
                                            batch.first_sequence + count, options_.most_sequences()));
  }
  const bool tokens = network_.sample_shape().tokens;
  if (batch.weights.present() && (!options_.weighted || tokens)) {
    throw std::invalid_argument("a batch with weights: this model takes none");
  }
  const std::int64_t features = stored_features(network_, options_), targets = target_columns(network_, options_.loss);
  if (batch.weights.present() && count > 0 && batch.weights.columns != weight_columns(network_)) {
    throw std::invalid_argument("a batch has a weight for each sample, or for each position of its masks");
  }
  const ElementType y_type = takes_classes(options_.loss) ? ElementType::int32 : ElementType::float32;
  if (count == 0) {
    batch.x = {nullptr, tokens ? ElementType::int32 : options_.sample_type, 0, features};
    batch.y = {nullptr, y_type, 0, targets};
  }
  require(is(batch.x, batch.x.type, count, features), "stage", "x must be [samples, features of the network]");
  require(absent_or(batch.y, y_type, count, targets), "stage", "y must be the targets of the loss");
  return backend_.stage(slot, batch);
}

void BatchStage::stage_next(const Batch& batch) {
  const int slot = (current_slot_ + 1) % kTrainingSlots;
  slots_[static_cast<std::size_t>(slot)] = stage(slot, batch);
  current_slot_ = slot;
}

void BatchStage::release_current() {
  released_slot_ = current_slot_;
  backend_.release_stage(released_slot_);
}

Batch BatchStage::stage_for_evaluation(const Batch& batch) {
  Batch without_keys = batch;
  without_keys.keys = {};
  return stage(evaluation_slot(), without_keys);
}

void BatchStage::release_evaluation() { backend_.release_stage(evaluation_slot()); }

Tensor BatchStage::network_input(const Batch& batch) {
  if (network_.sample_shape().tokens) return batch.x;
  const InputTransform& transform = options_.input_transform;
  const bool augmented = options_.augmentation.has_value();
  if (!augmented && transform.scale == 1 && transform.shift == 0 && batch.x.type == backend_.compute_type()) {
    return batch.x;
  }
  const Tensor converted{converted_.data(), backend_.compute_type(), batch.x.rows, network_.sample_shape().features};
  if (augmented) {
    backend_.images().augment(batch.x, batch.keys, *options_.augmentation, converted);
  } else {
    backend_.convert_input(batch.x, transform, converted);
  }
  return converted;
}

}  // namespace lockstep::model
