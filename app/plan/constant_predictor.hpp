/// \file
/// The least that a network must beat: a predictor that looks at no sample. It knows the labels of the training data,
/// and always answers alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/data_description.hpp"
#include "model/network.hpp"

namespace lockstep::app {

struct ConstantPredictor {
  /// Samples of each class, or tokens of each kind; empty: it predicts numbers or labels.
  std::vector<double> counts = {};
  /// The mean of each target as the network learns it (standardised where that is); of labels the share of the samples
  /// that have one.
  std::vector<float> means = {};
  std::string words = {};  ///< "the most frequent class of the training data, cat"

  bool empty() const noexcept { return counts.empty() && means.empty(); }
};

/// Collective. Of the labels of `training`, which delivers them as the network learns them; the same bits at any number
/// of ranks. Labels of more than 4 GiB are read in part.
ConstantPredictor find_constant(comm::Communicator& communicator, const io::Dataset& training, model::LossKind loss);
/// The one that a checkpoint keeps (DataDescription::class_counts, target_means); empty where it keeps none.
ConstantPredictor stored_constant(const io::DataDescription& description, model::LossKind loss);
/// For the checkpoint of a run; nothing is kept of tokens, nor of very many classes.
void store_constant(const ConstantPredictor& constant, io::DataDescription& description);

/// Collective. What it reaches on `data`, whose labels are as the network learns them. The loss is that of the shares
/// of the classes, which is infinite where `data` has a class that training has not; tokens are counted once more than
/// they are there, so that theirs is finite.
Score score_of(comm::Communicator& communicator, const ConstantPredictor& constant, const io::Dataset& data,
               model::LossKind loss, const Task& task);

/// "a constant (the mean of the training targets) reaches loss 1.02  mean absolute error 0.49".
std::string format_constant(const ConstantPredictor& constant, const Score& reached, const Task& task);
/// "accuracy 9.20 % is no better than the 10.00 % of a constant (...)"; "" where a network of this metric beats it, or
/// nothing could.
std::string beaten_by(const ConstantPredictor& constant, double metric, const Score& reached, const Task& task);
/// Entries of a record: constant_loss (where it is finite), constant_accuracy ...
void add_constant(const Score& reached, const Task& task, io::MetricRecord& record);

}  // namespace lockstep::app
