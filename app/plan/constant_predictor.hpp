/// \file
/// The baseline that a network must beat: a predictor that ignores the sample. It knows the labels of the training data
/// and always gives the same answer.
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
  /// Samples of each class, or tokens of each kind; empty: it predicts numbers or labels.
  std::vector<double> counts = {};
  /// For each target as the network learns it (standardised where that is): what it predicts. Of labels the share of
  /// the samples that have one.
  std::vector<float> values = {};
  bool medians = false;    ///< `values` are medians: the least absolute error; else means: the least squared one
  bool in_part = false;    ///< some of the labels alone are known: there are very many
  std::string words = {};  ///< "the most frequent class of the training data, cat"

  bool empty() const noexcept { return counts.empty() && values.empty(); }
};

/// Bytes of labels, beyond which find_constant() reads some of them alone.
inline constexpr std::uint64_t kMaxLabelBytes = std::uint64_t{4} << 30;

/// Collective. Of the labels of `training`, which delivers them as the network learns them; the same bits at any number
/// of ranks. Numbers that are learnt with a loss of absolute errors (Huber's too) have their median, exactly: their
/// labels are read two times, those of more than 16 targets four times or more.
ConstantPredictor find_constant(comm::Communicator& communicator, const io::Dataset& training, model::LossKind loss,
                                std::uint64_t max_bytes = kMaxLabelBytes);
/// The one that a checkpoint keeps (DataDescription::class_counts, target_means, target_medians); empty where it keeps
/// none.
ConstantPredictor stored_constant(const io::DataDescription& description, model::LossKind loss);
/// The same for a run that goes on: empty, too, unless `training` are those data, with the same classes and the same
/// `targets`, and all have checksums.
ConstantPredictor known_constant(const io::TrainingRecord& record, const io::Dataset& training,
                                 const io::FeatureScale& targets, model::LossKind loss);
/// For the checkpoint of a run; nothing is kept of tokens, nor of very many classes.
void store_constant(const ConstantPredictor& constant, io::DataDescription& description);

/// Collective. The predictor's score on `data`, whose labels are in the network's units. The loss uses the shares of
/// the classes and is infinite if `data` has a class that the training data lack. Each token's count is raised by one,
/// so that the loss of tokens is finite.
Score score_of(comm::Communicator& communicator, const ConstantPredictor& constant, const io::Dataset& data,
               model::LossKind loss, const Task& task);

/// "a constant (the mean of the training targets) reaches loss 1.02  mean absolute error 0.49".
std::string format_constant(const ConstantPredictor& constant, const Score& reached, const Task& task);
/// The number that is compared with a constant's: the task's metric, or mean IoU of masks, most of whose positions
/// often have one class.
double compared(const Score& score, const Task& task) noexcept;
/// "accuracy 9.20 % is no better than the 10.00 % of a constant (...)"; "" if `metric`, compared() of the network's, is
/// better, or if no network could be better.
std::string beaten_by(const ConstantPredictor& constant, double metric, const Score& reached, const Task& task);
/// Adds entries to a record: constant_loss (if it is finite), constant_accuracy ...
void add_constant(const Score& reached, const Task& task, io::MetricRecord& record);

}  // namespace lockstep::app
