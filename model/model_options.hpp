/// \file
/// Options that distinguish models of one network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

/// One of several losses of a network.
struct LossTerm {
  LossKind kind = LossKind::softmax_cross_entropy;
  /// Columns of the network's output that it reads, and of the targets unless these are classes.
  std::int64_t first = 0, columns = 0;
  LossShare share = {};  ///< its weight, and the share of its metric in that of the network
};

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  /// Several losses, at most kMaxLosses, in place of `loss`, which then says what targets are: classes or numbers. Two
  /// of them read the same columns or have none in common; together they read all columns.
  std::vector<LossTerm> losses = {};
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
