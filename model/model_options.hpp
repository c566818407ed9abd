/// \file
/// What distinguishes the models of one network.
#pragma once

#include <cstdint>
#include <optional>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

enum class Purpose { training, evaluation };

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  InputTransform input_transform = {};
  /// Instead of the transform, for images; in evaluation the deterministic form.
  std::optional<Augmentation> augmentation = {};
  float label_smoothing = 0;                       ///< of the training loss
  bool weighted = false;                           ///< batches of training may have weights
  std::int64_t max_batch = 1;                      ///< samples at once
  ElementType sample_type = ElementType::float32;  ///< of the largest x that will come, for batches that are copied
  /// For networks with recurrent state: most sequences of this rank, over all micro-batches; 0: max_batch.
  std::int64_t sequences = 0;
  SumOverRanks sum_over_ranks = {};  ///< for networks that synchronise within a pass; empty: a world of one

  std::int64_t most_sequences() const noexcept { return sequences > max_batch ? sequences : max_batch; }
};

}  // namespace lockstep::model
