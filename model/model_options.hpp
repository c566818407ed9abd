/// \file
/// Options that distinguish models of one network.
#pragma once

#include <cstdint>
#include <optional>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  InputTransform input_transform = {};
  /// Replaces the transform, for images; deterministic in evaluation.
  std::optional<Augmentation> augmentation = {};
  float label_smoothing = 0;   ///< label smoothing of the training loss
  bool weighted = false;       ///< batches may have weights
  std::int64_t max_batch = 1;  ///< largest batch, in samples
  ElementType sample_type =
      ElementType::float32;  ///< type of the largest x that will come, for batches that are copied
  /// For networks with recurrent state: largest number of sequences of this rank, over all micro-batches; 0: max_batch.
  std::int64_t sequences = 0;
  SumOverRanks sum_over_ranks = {};  ///< for networks that synchronise within a pass; empty: a world of one

  std::int64_t most_sequences() const noexcept { return sequences > max_batch ? sequences : max_batch; }
};

}  // namespace lockstep::model
