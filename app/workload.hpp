/// \file
/// What is trained on what: data, network, loss, schedule and the amount of work, decided before any memory is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "app/options.hpp"
#include "app/task.hpp"
#include "io/dataset.hpp"
#include "model/model.hpp"
#include "model/network.hpp"
#include "model/schedule.hpp"

namespace lockstep::app {

/// Where the samples are.
struct DataPaths {
  std::filesystem::path training;
  std::filesystem::path validation;  ///< empty: none
};
/// A folder that holds train/ stands for its train/ and, where it exists, its validation/ or test/.
DataPaths resolve_data_paths(const TrainOptions& options);

/// What model calls a type of stored samples; throws std::invalid_argument on types that no model takes.
model::ElementType element_type(io::FileType type);

// Options as the model room wants them. Throw UsageError on values that only the model room can judge.
model::NetworkOptions network_options(const TrainOptions& options);
model::OptimizerOptions optimizer_options(const TrainOptions& options);
model::InputTransform input_transform(const TrainOptions& options, const io::DatasetInfo& info);
model::LossKind loss_kind(const TrainOptions& options, const io::DatasetInfo& info);
/// What a network sees of samples like these: images after their augmentation, tokens as windows.
model::SampleShape sample_shape(const TrainOptions& options, const io::DatasetInfo& info);
/// How images become a network's input; nothing where plain numbers do.
std::optional<model::Augmentation> augmentation(const TrainOptions& options, const io::DatasetInfo& info);
/// Samples, or a corpus for a network that reads tokens. Throws UsageError where one is needed and the other is there.
std::unique_ptr<io::Dataset> open_dataset(const TrainOptions& options, const std::filesystem::path& path);
/// Samples of a step stay in their lanes, in order: what a network that carries state needs.
bool takes_streams(const model::Network& network) noexcept;
/// Throws UsageError where the data at `path` has samples only: nothing to learn from or to compare with.
void require_labels(const io::DatasetInfo& info, const std::filesystem::path& path);

/// Text that says which network this is, with its input and output sizes; equal text, equal network.
std::string network_identity(const model::Network& network);
/// The sizes in a network_identity; throws std::invalid_argument on other text.
model::SampleShape shape_of_identity(const std::string& identity);

/// How much a job does.
struct WorkPlan {
  std::int64_t global_batch = 1;   ///< samples per step, over all ranks and micro-steps
  std::int64_t largest_part = 1;   ///< most samples one rank gets in one micro-step
  std::int64_t most_lanes = 1;     ///< of one rank, in all its micro-steps
  std::int64_t epoch_samples = 1;  ///< positions of an epoch
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 1;
  std::int64_t evaluate_every = 0;    ///< steps; 0 = never before the end
  std::int64_t checkpoint_every = 0;  ///< steps; 0 = never before the end
};
/// Throws UsageError where streams are wider than the data.
WorkPlan work_plan(const TrainOptions& options, std::int64_t samples, int world, bool streams = false);
model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work);

struct Workload {
  std::unique_ptr<io::Dataset> training;
  std::unique_ptr<io::Dataset> validation;  ///< may be null
  std::unique_ptr<model::Network> network;
  model::ModelOptions model;  ///< without gradient_memory
  WorkPlan work;
  std::optional<Task> task;
};

/// Opens and validates the data and builds the network; no communication. Throws UsageError, io::FileError.
/// Replaces what "auto" stands for in `options` by what was decided, so that they become the effective configuration.
Workload prepare_workload(TrainOptions& options, int world);

}  // namespace lockstep::app
