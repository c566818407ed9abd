#include "model/batch.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

std::int64_t stored_features(const Network& network, const ModelOptions& options) {
  return options.augmentation ? options.augmentation->in.elements() : network.sample_shape().features;
}

/// Number of columns of y.
std::int64_t target_columns(const Network& network, LossKind loss) {
  const SampleShape& shape = network.sample_shape();
  if (shape.tokens) return shape.features;
  return loss == LossKind::softmax_cross_entropy ? 1 : shape.outputs;
}

StageBytes bytes_of_slot(const Network& network, const ModelOptions& options) {
  const auto bytes = [&](std::int64_t per_sample, std::size_t size) {
    return static_cast<std::size_t>(options.max_batch * per_sample) * size;
  };
  return {.x = bytes(stored_features(network, options), size_of(options.sample_type)),
          .y = bytes(target_columns(network, options.loss), 4),  // int32 or float32
          .keys = bytes(1, sizeof(std::uint64_t)),
          .weights = options.weighted ? bytes(1, sizeof(float)) : 0};
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

/// Converted samples take memory unless the backend can read every batch in place. Only the batches themselves tell
/// whether it can, so the memory is always planned (and, on a host, becomes resident only when it is used).
std::size_t BatchStage::converted_bytes(const Network& network, const ModelOptions& options, ElementType compute) {
  if (network.sample_shape().tokens) return 0;
  return static_cast<std::size_t>(options.max_batch * network.sample_shape().features) * size_of(compute);
}

std::size_t BatchStage::slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose) {
  const StageBytes slot = bytes_of_slot(network, options);
  return static_cast<std::size_t>(purpose == Purpose::training ? kTrainingSlots + 1 : 1) *
         (slot.x + slot.y + slot.keys + slot.weights);
}

BatchStage::Staged BatchStage::stage(int slot, const Batch& batch, bool with_keys) {
  if (batch.count < 0 || batch.count > options_.max_batch) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples: this model takes 0 to {}", batch.count, options_.max_batch));
  }
  if (batch.count > 0 && (batch.x == nullptr || batch.y == nullptr)) {
    throw std::invalid_argument("a batch without samples or targets");
  }
  if (batch.first_sequence < 0 || batch.first_sequence + batch.count > options_.most_sequences()) {
    throw std::invalid_argument(fmt::format("a batch of sequences {} to {}: this model has {}", batch.first_sequence,
                                            batch.first_sequence + batch.count, options_.most_sequences()));
  }
  // Tensors cannot be const; the samples are only read.
  const bool tokens = network_.sample_shape().tokens;
  const bool classifies = options_.loss == LossKind::softmax_cross_entropy;
  const Tensor x{const_cast<void*>(batch.x), batch.count == 0 && tokens ? ElementType::int32 : batch.x_type,
                 batch.count, stored_features(network_, options_)};
  const Tensor y{const_cast<void*>(batch.y), classifies ? ElementType::int32 : ElementType::float32, batch.count,
                 target_columns(network_, options_.loss)};
  Tensor keys;
  if (batch.keys != nullptr && with_keys) {
    keys = {const_cast<std::uint64_t*>(batch.keys), ElementType::uint64, batch.count, 1};
  }
  Tensor weights;
  if (batch.weights != nullptr) {
    if (!options_.weighted || tokens) throw std::invalid_argument("a batch with weights: this model takes none");
    weights = {const_cast<float*>(batch.weights), ElementType::float32, batch.count, 1};
  }
  return {backend_.stage(slot, {.x = x, .y = y, .keys = keys, .weights = weights}), batch.first_sequence};
}

void BatchStage::stage_next(const Batch& batch) {
  const int slot = (current_slot_ + 1) % kTrainingSlots;
  slots_[static_cast<std::size_t>(slot)] = stage(slot, batch, true);
  current_slot_ = slot;
}

void BatchStage::release_current() {
  released_slot_ = current_slot_;
  backend_.release_stage(released_slot_);
}

BatchStage::Staged BatchStage::stage_for_evaluation(const Batch& batch) {
  return stage(evaluation_slot(), batch, false);
}

void BatchStage::release_evaluation() { backend_.release_stage(evaluation_slot()); }

Tensor BatchStage::network_input(const StagedBatch& batch) {
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
