/// \file
/// The workload of a job: data, network, loss, optimiser and amount of work, decided before any memory is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/data/data_match.hpp"
#include "app/data/field_axes.hpp"
#include "app/data/open_dataset.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/constant_predictor.hpp"
#include "app/plan/loss_weights.hpp"
#include "app/plan/task.hpp"
#include "app/plan/work_plan.hpp"
#include "io/datasets/dataset.hpp"
#include "io/datasets/prefetcher.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/feature_scale.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

/// Training data of the checkpoint that a run starts from.
struct KnownData {
  enum class Fit {
    required,  ///< the run resumes, or begins with all weights of the checkpoint
    wanted,    ///< some weights are initialised anew: differing columns cause only a warning
  };
  io::DataDescription description;
  Fit fit = Fit::required;
};

struct Workload {
  /// The options, adapted to the data: without unsuitable defaults of the network, and with its size for small data.
  TrainOptions options;
  DataPaths paths;
  std::unique_ptr<io::Dataset> training;    ///< nullptr for a benchmark whose samples are in no file
  std::unique_ptr<io::Dataset> validation;  ///< may be nullptr; has the class numbers of the training data
  std::vector<FieldAxes> axes = {};         ///< meaning of the inputs' extents; empty for tokens
  std::vector<std::string> notes = {};      ///< mappings of columns and classes, a sentence each
  std::vector<std::string> warnings = {};   ///< likely mistakes in the data, a sentence each
  std::optional<ValueRange> range = {};     ///< range of the training samples, of at least some; nullopt: tokens
  LossWeights weights;                      ///< weights of the training samples' losses
  io::FeatureScale features, targets;       ///< scales of the standardised data; empty: not standardised
  std::unique_ptr<model::Network> network;
  model::ModelOptions model;
  model::OptimizerOptions optimizer;
  WorkPlan work;
  std::optional<Task> task;
  ConstantPredictor constant;                ///< predictor for the training data; empty: not computed
  std::optional<Score> constant_score = {};  ///< score of `constant` on the validation data, if there are any
};

/// Opens and validates the data and builds the network. Does not communicate. `deadline`: limits operations on the
/// files of the data, and must outlive the data. `known`: training data of the initial weights; nullptr if the weights
/// are new or their training data are unknown. Throws UsageError and io::FileError.
Workload prepare_workload(const TrainOptions& options, int world, io::IoDeadline* deadline = nullptr,
                          const SharedData& shared = {}, const KnownData* known = nullptr);
/// Returns the wider of the types of training and validation samples: memory for samples must have room for both.
model::ElementType widest_sample_type(const Workload& workload);
/// Returns the options with which a rank reads its part of the training data, from the first epoch on.
io::PrefetcherOptions reading(const Workload& workload, int rank, int world);

}  // namespace lockstep::app
