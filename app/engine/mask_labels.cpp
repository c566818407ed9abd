#include "app/engine/mask_labels.hpp"

#include <algorithm>

#include "model/mask_augmentation.hpp"

namespace lockstep::app {

MaskLabels::MaskLabels(const model::Network& network, const model::ModelOptions& options, std::int64_t most,
                       std::pmr::memory_resource* memory)
    : augmented_(memory), weights_(memory) {
  if (network.sample_shape().grid.empty() || !model::takes_classes(options.loss)) return;
  positions_ = stored_positions_ = static_cast<std::size_t>(network.positions());
  weighted_ = options.weighted;
  if (options.augmentation && options.augmentation->moves_pixels()) {
    augmentation_ = options.augmentation;
    stored_positions_ = static_cast<std::size_t>(augmentation_->in.pixels());
    augmented_.resize(static_cast<std::size_t>(most) * positions_);
  }
  if (weighted_) weights_.resize(static_cast<std::size_t>(most) * positions_);
}

std::span<const std::int32_t> MaskLabels::labels(std::span<const std::byte> y, std::span<const std::uint64_t> keys) {
  const std::span stored(reinterpret_cast<const std::int32_t*>(y.data()), y.size() / sizeof(std::int32_t));
  if (!augmentation_) return stored;
  const std::span<std::int32_t> out = std::span(augmented_).first(stored.size() / stored_positions_ * positions_);
  model::augment_masks(stored, keys, *augmentation_, out);
  return out;
}

void MaskLabels::count(std::span<const std::int32_t> labels, std::span<double> counts) {
  for (const std::int32_t label : labels) {
    if (label != model::kNoClass) ++counts[static_cast<std::size_t>(label)];
  }
}

std::span<const float> MaskLabels::weights(std::span<const std::int32_t> labels, std::span<const float> factors) {
  const std::span<float> weights = std::span(weights_).first(labels.size());
  std::ranges::transform(labels, weights.begin(), [factors](std::int32_t label) {
    return label == model::kNoClass ? 0 : factors.empty() ? 1 : factors[static_cast<std::size_t>(label)];
  });
  return weights;
}

}  // namespace lockstep::app
