/// \file
/// Options of a Model, in addition to its network.
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
  /// Columns of the network's output that it reads. It reads the same columns of the targets, unless targets are
  /// classes.
  std::int64_t first = 0, columns = 0;
  LossShare share = {};  ///< its weight, and the share of its metric in the network's metric
};

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  /// If not empty: several losses, at most kMaxLosses, which replace `loss`; `loss` then only selects the type of
  /// targets, classes or numbers. Two losses read the same columns or no common column; together they read all columns.
  std::vector<LossTerm> losses = {};
  InputTransform input_transform = {};
  /// For images: replaces input_transform; deterministic in evaluation.
  std::optional<Augmentation> augmentation = {};
  float label_smoothing = 0;                       ///< for the training loss alone
  bool weighted = false;                           ///< batches may have weights
  std::int64_t max_batch = 1;                      ///< largest batch, in samples
  ElementType sample_type = ElementType::float32;  ///< type of the largest x in any batch: sizes the staging slots
  /// For networks with recurrent state: number of this rank's sequences, over all micro-batches; 0: max_batch.
  std::int64_t sequences = 0;
  SumOverRanks sum_over_ranks = {};  ///< for networks that sum over ranks within a pass; empty: a world of one

  std::int64_t most_sequences() const noexcept { return sequences > max_batch ? sequences : max_batch; }
};

}  // namespace lockstep::model
