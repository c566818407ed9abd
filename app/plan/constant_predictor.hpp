/// \file
/// The baseline that a network must beat: a predictor that ignores the sample. It is computed from the labels of the
/// training data and always gives the same answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/data_description.hpp"
#include "model/network.hpp"

namespace lockstep::app {

struct ConstantPredictor {
  /// Number of samples of each class, or of occurrences of each token; empty: it predicts numbers or labels.
  std::vector<double> counts = {};
  /// Prediction for each target or channel, in the units of the network (standardised if they are). For labels, the
  /// share of samples that have the label.
  std::vector<float> values = {};
  bool medians = false;    ///< `values` are medians (least absolute error); otherwise means (least squared error)
  bool in_part = false;    ///< computed from a subset of the labels, because there are very many
  std::string words = {};  ///< description: "the most frequent class of the training data, cat"

  bool empty() const noexcept { return counts.empty() && values.empty(); }
};

/// Size of labels in bytes beyond which find_constant() reads only a subset.
inline constexpr std::uint64_t kMaxLabelBytes = std::uint64_t{4} << 30;

/// Collective. Computes the predictor from the labels of `training`, which delivers them in the units of the network.
/// The result has the same bits at any number of ranks. With mean absolute error or Huber loss it predicts the exact
/// median of the labels that it reads: it reads them twice, and for more than 16 targets four or eight times.
ConstantPredictor find_constant(comm::Communicator& communicator, const io::Dataset& training, model::LossKind loss,
                                std::uint64_t max_bytes = kMaxLabelBytes);
/// Returns the predictor in a checkpoint (DataDescription::class_counts, target_means, target_medians); empty if the
/// checkpoint stores none.
ConstantPredictor stored_constant(const io::DataDescription& description, model::LossKind loss);
/// Like stored_constant(), for a resumed run. Also empty unless `training` is the recorded data with checksums for all
/// labels, and classes and the scales `targets` are unchanged.
ConstantPredictor known_constant(const io::TrainingRecord& record, const io::Dataset& training,
                                 const io::FeatureScale& targets, model::LossKind loss);
/// Stores the predictor for a checkpoint. Stores no counts of tokens, and nothing beyond 65,536 classes or targets.
void store_constant(const ConstantPredictor& constant, io::DataDescription& description);

/// Collective. Returns the score of the predictor on `data`, whose labels are in the units of the network. With
/// classes, the loss uses their shares of the training data and is infinite if `data` has a class that the training
/// data lack. The count of each token is raised by one, so that the loss of tokens is finite. With several losses, the
/// loss is infinite: unknown.
Score score_of(comm::Communicator& communicator, const ConstantPredictor& constant, const io::Dataset& data,
               model::LossKind loss, const Task& task);

/// Returns "a constant (the mean of the training targets) reaches loss 1.02  mean absolute error 0.49".
std::string format_constant(const ConstantPredictor& constant, const Score& reached, const Task& task);
/// Returns the number that is compared with that of a constant: the metric of the task, but mean IoU for masks, because
/// most positions of a mask often have the same class.
double compared(const Score& score, const Task& task) noexcept;
/// Returns "accuracy 9.20 % is no better than the 10.00 % of a constant (...)"; "" if the network is better or if no
/// network could be. `metric`: compared() of the network's score. `reached`: score of the constant.
std::string beaten_by(const ConstantPredictor& constant, double metric, const Score& reached, const Task& task);
/// Adds entries to a record: constant_loss (if it is finite), constant_accuracy, ...
void add_constant(const Score& reached, const Task& task, io::MetricRecord& record);

}  // namespace lockstep::app
