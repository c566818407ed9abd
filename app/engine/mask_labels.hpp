/// \file
/// Prepares the labels of masks for a model: augments them like their images, and computes weights that make the loss
/// of a step a mean over the positions that have a class.
///
/// The mean of a step is sum(w[label] * loss) / sum(w[label]) over all its positions with a class, on all ranks and in
/// all micro-steps. w are the weights of the classes: 1 each unless --class-weight changes them. The divisor depends
/// only on the labels. The ranks add the number of positions of each class; these are whole numbers, so the divisor has
/// the same bits at any number of ranks. A model divides by all positions of a step; the weights of its rows correct
/// the difference.
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
  /// `most`: largest number of samples in a call. Without masks, all calls return their arguments unchanged, and no
  /// weights.
  MaskLabels(const model::Network& network, const model::ModelOptions& options, std::int64_t most,
             std::pmr::memory_resource* memory);

  bool are_masks() const noexcept { return positions_ > 0; }
  /// True if losses need weights: some positions may have no class, or classes have weights.
  bool are_weighted() const noexcept { return weighted_; }
  /// Number of positions of a sample in the network.
  std::size_t positions() const noexcept { return positions_; }

  /// Returns the labels in the form that the network needs. y: int32, as stored. `keys`: keys of the images'
  /// augmentation; empty in evaluation. Valid until the next call.
  std::span<const std::int32_t> labels(std::span<const std::byte> y, std::span<const std::uint64_t> keys);
  /// Adds the positions of each class to `counts`.
  static void count(std::span<const std::int32_t> labels, std::span<double> counts);
  /// Returns a weight for each position: factors[label], or 0 without a class. If `factors` is empty, each factor is 1.
  /// Valid until the next call.
  std::span<const float> weights(std::span<const std::int32_t> labels, std::span<const float> factors);

 private:
  std::size_t positions_ = 0, stored_positions_ = 0;
  bool weighted_ = false;
  std::optional<model::Augmentation> augmentation_;
  std::pmr::vector<std::int32_t> augmented_;
  std::pmr::vector<float> weights_;
};

}  // namespace lockstep::app
