/// \file
/// Labels of masks on their way to a model: with the augmentation of their images, and with weights that make the loss
/// of a step a mean over the positions that have a class.
///
/// The mean of a step is sum(w[label] * loss) / sum(w[label]) over all its positions with a class, on all ranks and in
/// all micro-steps: w are the weights of the classes, 1 each unless --class-weight says otherwise. The divisor is a
/// function of the labels alone. Ranks add the positions of each class, whole numbers, so that it has the same bits
/// at any number of ranks. A model divides by all positions of a step; what differs is part of the weights of its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "model/model.hpp"

namespace lockstep::app {

class MaskLabels {
 public:
  /// `most`: largest number of samples at once. Without masks all calls return what they are given, and no weights.
  MaskLabels(const model::Network& network, const model::ModelOptions& options, std::int64_t most,
             std::pmr::memory_resource* memory);

  bool are_masks() const noexcept { return positions_ > 0; }
  /// True if some positions may have no class, or classes have weights: losses need weights.
  bool are_weighted() const noexcept { return weighted_; }
  /// Positions of a sample, as the network has them.
  std::size_t positions() const noexcept { return positions_; }

  /// The labels as the network has them; y: int32, as stored. `keys` are those of the images' augmentation, or empty,
  /// as in evaluation. Valid until the next call.
  std::span<const std::int32_t> labels(std::span<const std::byte> y, std::span<const std::uint64_t> keys);
  /// Adds the positions of each class to `counts`.
  static void count(std::span<const std::int32_t> labels, std::span<double> counts);
  /// A weight for each position, valid until the next call: factors[label], and 0 without a class. Empty factors: 1
  /// each.
  std::span<const float> weights(std::span<const std::int32_t> labels, std::span<const float> factors);

 private:
  std::size_t positions_ = 0, stored_positions_ = 0;
  bool weighted_ = false;
  std::optional<model::Augmentation> augmentation_;
  std::pmr::vector<std::int32_t> augmented_;
  std::pmr::vector<float> weights_;
};

}  // namespace lockstep::app
