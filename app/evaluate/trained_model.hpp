/// \file
/// A trained network with the data to read: the common first part of eval and predict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/engine/finite_weights.hpp"
#include "app/engine/snapshot.hpp"
#include "app/evaluate/trained_model_options.hpp"
#include "app/options/stored_options.hpp"
#include "app/plan/constant_predictor.hpp"
#include "app/plan/task.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"
#include "io/datasets/dataset.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/data_description.hpp"
#include "model/model.hpp"

namespace lockstep::app {

class TrainedModel {
 public:
  enum class Labels { required, as_they_come };
  /// Collective. Reads the checkpoint on rank 0, opens the data, allocates memory, restores the weights. Throws
  /// UsageError and comm::ConsensusError, the same on all ranks. All referenced objects must outlive this one.
  TrainedModel(comm::Communicator& communicator, Console& console, const TrainedModelOptions& request, Labels labels,
               const ExecutionOptions& execution, io::IoDeadline& deadline);
  ~TrainedModel();

  model::Model& model() noexcept { return *model_; }
  const model::Network& network() const noexcept { return *network_; }
  const model::Backend& backend() const noexcept { return *backend_; }
  model::Precision precision() const noexcept { return precision_; }  ///< precision of matrix products
  const io::Dataset& dataset() const noexcept { return *dataset_; }
  /// The same data with the targets of training, which may be standardised: for losses.
  const io::Dataset& dataset_as_learnt() const noexcept { return *as_learnt_; }
  /// Standardisation of the predicted numbers; empty: none.
  const io::FeatureScale& target_scale() const noexcept { return targets_; }
  const Task& task() const noexcept { return *task_; }
  const CheckpointOnRank0& source() const noexcept { return source_; }
  std::int64_t batch() const noexcept { return trained_.validation.batch; }  ///< samples at once
  /// Conversion of stored numbers to inputs.
  const Normalization& normalization() const noexcept { return trained_.data.normalize; }
  const std::filesystem::path& data() const noexcept { return trained_.data.validation; }
  /// True if the samples are those that `train --validation SHARE` put aside, a part of the data.
  bool is_part() const noexcept { return trained_.data.validation_share > 0; }
  /// The choice of these samples among all samples of the data; nullopt: all, or windows, which have names.
  const std::optional<io::SampleSplit>& part() const noexcept { return part_; }
  model::LossKind loss() const noexcept { return model_options_.loss; }
  /// The losses of a network with several; empty: only loss().
  const std::vector<model::LossTerm>& losses() const noexcept { return model_options_.losses; }
  bool average() const noexcept { return average_; }
  model::Weights weights() const noexcept { return average_ ? model::Weights::average : model::Weights::current; }
  /// The checkpoint's description of the training data; nullopt if it has none.
  const std::optional<io::DataDescription>& trained_on() const noexcept { return trained_on_; }
  /// The constant predictor for the labels that the network was trained on; empty if the checkpoint does not store it.
  const ConstantPredictor& constant() const noexcept { return constant_; }
  /// The result of the check that the weights are finite.
  const FiniteWeights& finite() const noexcept { return finite_; }
  /// Extents of a predicted field, as its data have them; empty: a sample has a row of outputs, or a mask.
  const std::vector<std::int64_t>& field_shape() const noexcept { return field_shape_; }
  /// Names of the predicted numbers or labels; empty: not known.
  std::vector<std::string> target_names() const;
  /// On rank 0: "runs/a/checkpoints/step-0000000100.h5 (step 100, the best of its run)".
  std::string description() const;

 private:
  void follow_run(const std::filesystem::path& checkpoint);
  void require_data_of_run() const;
  void find_data(comm::Communicator& communicator, const TrainedModelOptions& request);
  bool takes_images() const;
  std::unique_ptr<io::Dataset> open_images() const;
  void open_data(comm::Communicator& communicator, const TrainedModelOptions& request, io::IoDeadline& deadline);
  void match_data(const TrainedModelOptions& request, std::unique_ptr<io::Dataset>& opened);
  void require_past_targets(const io::DatasetInfo& rows) const;
  void require_same_positions(const io::DatasetInfo& info, bool has_labels) const;
  void standardize();
  void compare_values(comm::Communicator& communicator, const TrainedModelOptions& request);
  void load(comm::Communicator& communicator, Console& console, const ExecutionOptions& execution);

  CheckpointOnRank0 source_;
  Labels labels_;
  InferenceOptions trained_;  ///< options of training, with the batch and the paths of this data
  bool average_;
  std::optional<io::DataDescription> trained_on_;
  std::vector<std::string> notes_, warnings_;  ///< results of the comparison of the data with the training data
  std::shared_ptr<io::Dataset> dataset_, as_learnt_;
  std::optional<io::SampleSplit> part_;
  io::FeatureScale targets_;
  std::vector<std::int64_t> field_shape_;
  ConstantPredictor constant_;
  std::unique_ptr<model::Network> network_;
  model::ModelOptions model_options_;
  std::optional<Task> task_;
  model::Precision precision_ = model::Precision::fp32;
  std::unique_ptr<model::Backend> backend_;
  std::optional<model::ParameterState> parameters_;
  std::optional<model::Model> model_;
  FiniteWeights finite_;
};

}  // namespace lockstep::app
