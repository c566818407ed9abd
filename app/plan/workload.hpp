/// \file
/// What is trained on what: data, network, loss, schedule and the amount of work, decided before any memory is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/plan/constant_predictor.hpp"
#include "app/plan/loss_weights.hpp"
#include "app/plan/shared_data.hpp"
#include "app/plan/task.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/datasets/dataset.hpp"
#include "io/datasets/prefetcher.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/feature_scale.hpp"
#include "io/shards/shard_file.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

/// The least integer that is no less than a / b.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// Where the samples are.
struct DataPaths {
  std::filesystem::path training;
  std::filesystem::path validation;  ///< empty: none
};
/// Whether `lockstep pack` made them: their datasets are x and y.
bool is_packed_data(const std::filesystem::path& path);
/// A folder that holds train/ stands for its train/ and, where it exists, its validation/ or test/.
DataPaths resolve_data_paths(const DataOptions& options);

/// What model calls a type of stored samples; throws std::invalid_argument on types that no model takes.
model::ElementType element_type(io::FileType type);

// What options come to with this data. Throw UsageError where the two do not go together.
model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info);
model::LossKind loss_kind(const LossOptions& options, const io::DatasetInfo& info);
/// How images become a network's input; nothing where plain numbers do.
std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info);
/// What a network sees of samples like these: images after their augmentation, tokens as windows.
model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation);

/// What a network reads of a file: training, validation and evaluation alike.
struct DataFormat {
  std::string network = {};  ///< its name, for messages
  std::int64_t context = 0;  ///< tokens of a sample; 0: it reads samples as they are stored
  std::string x, y;          ///< HDF5 dataset names; of tokens y is ""
  std::string weight = {};   ///< likewise; "": none
  io::Unlabelled unlabelled = io::Unlabelled::refused;
  io::Gaps gaps = {};
  std::uint64_t seed = 1;  ///< of where samples of tokens begin
  bool shift_windows = true;
  io::Layout layout = io::Layout::automatic;
  io::LabelMeaning labels = io::LabelMeaning::automatic;  ///< of data made by others, where it is known
};
/// `before`: the checkpoint that the run goes on from, or whose network is to be used: labels mean what they meant to
/// it.
DataFormat data_format(const TrainOptions& options, const io::DataDescription* before = nullptr);
/// Data made by others, before this process opens it: in a process of its own, which this program starts once more.
/// Throws io::FileError.
void inspect_data(const DataFormat& format, const std::filesystem::path& path);
/// Samples, or a corpus for a network that reads tokens. Targets come as they are, up to float64: whoever trains on
/// them puts a StandardizedDataset before them. Throws UsageError where one is needed and the other is there.
/// `deadline` outlives the dataset; nullptr: none.
std::unique_ptr<io::Dataset> open_dataset(const DataFormat& format, const std::filesystem::path& path,
                                          io::IoDeadline* deadline = nullptr, const SharedData& shared = {});

/// Samples of a step follow those of the step before, sequence by sequence: what a recurrent state needs.
bool is_recurrent(const model::Network& network) noexcept;
/// Throws UsageError where the data at `path` has samples only: nothing to learn from or to compare with.
void require_labels(const io::DatasetInfo& info, const std::filesystem::path& path);

/// What comes again and again: after each step whose number and `shift` make a multiple of `steps`.
struct Interval {
  std::int64_t steps = 0;  ///< 0: it never comes
  std::int64_t shift = 0;
  /// It comes after a step behind the first `before`, and not behind the first `after`.
  bool lies_between(std::int64_t before, std::int64_t after) const noexcept {
    return steps > 0 && (after + shift) / steps > (before + shift) / steps;
  }
  /// The step after which it comes next, with so many done.
  std::int64_t next(std::int64_t done) const noexcept { return ((done + shift) / steps + 1) * steps - shift; }
};

/// How much a job does.
struct WorkPlan {
  std::int64_t global_batch = 1;  ///< samples per step, over all ranks and micro-steps
  std::int64_t accumulate = 1;    ///< micro-steps of a step; with virtual ranks: of the rank with the most
  /// > 0: the parts that a step is computed in, each alone, whatever the number of ranks (--reproducible). Rank r of R
  /// computes those of [r V / R, (r + 1) V / R).
  std::int64_t virtual_ranks = 0;
  std::int64_t largest_part = 1;    ///< most samples one rank gets in one micro-step
  std::int64_t most_sequences = 1;  ///< of one rank, in all its micro-steps
  std::int64_t epoch_samples = 1;   ///< positions of an epoch
  std::int64_t steps_per_epoch = 1;
  double epochs = 1;  ///< of these steps each, where their number does not say how many there are
  std::int64_t total_steps = 1;
  /// Other than 0 where steps of another global batch were made before: after step n (n + epoch_shift) /
  /// steps_per_epoch epochs are done.
  std::int64_t epoch_shift = 0;
  Interval evaluate_every;    ///< before the end
  Interval checkpoint_every;  ///< by the number of steps
  double epochs_after(std::int64_t steps) const noexcept {
    return static_cast<double>(steps + epoch_shift) / static_cast<double>(steps_per_epoch);
  }
};
/// In the data: a step begins there, or an epoch ends.
struct DataPlace {
  std::int64_t epoch = 0, position = 0;
};
/// Where the data are after so many steps from there on, as a step's MicroBatch says.
DataPlace place_after(const WorkPlan& work, DataPlace from, std::int64_t steps);

/// A rank's sequences, of all those of the global batch: the same ones in every step.
struct SequenceShare {
  std::int64_t all = 0, first = 0, count = 0;
};
/// A rank's share of a step.
struct RankShare {
  std::int64_t micro_steps = 1;
  std::int64_t first_virtual_rank = 0;  ///< where there are virtual ranks: one for each micro-step
  SequenceShare sequences;
};
RankShare share_of(const WorkPlan& work, int rank, int world);
/// Of so many samples in steps of so many; `stateful`: of a recurrent network.
std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch, bool stateful);
/// `recurrent`: the network's kind where its sequences go on from batch to batch. Throws UsageError where such batches
/// are wider than the data.
WorkPlan work_plan(const TrainOptions& options, std::int64_t samples, int world,
                   const model::NetworkKind* recurrent = nullptr);
/// The work of a run that goes on there after so many steps, whatever global batch they had: it ends after its epochs.
void go_on_at(WorkPlan& work, const TrainOptions& options, std::int64_t step, DataPlace place);

/// What a checkpoint was trained on that a run begins with.
struct KnownData {
  enum class Fit {
    required,  ///< the run goes on with the same data, or with all of the weights
    wanted,    ///< some weights are drawn anew: other columns are said
  };
  io::DataDescription description;
  Fit fit = Fit::required;
};

struct Workload {
  /// The options, less those of the network's defaults that do not suit the data; nothing: of a benchmark without data.
  std::optional<TrainOptions> options = {};
  DataPaths paths;
  std::unique_ptr<io::Dataset> training;
  std::unique_ptr<io::Dataset> validation;  ///< may be null; with the classes' numbers of the training data
  std::vector<std::string> notes = {};      ///< what was mapped to that end, a sentence each
  std::vector<std::string> warnings = {};   ///< what is likely to be a mistake in it
  LossWeights weights;                      ///< of the training samples' losses
  io::FeatureScale features, targets;       ///< what the data are standardised with; empty: they are not
  model::NetworkOptions network_options;
  std::unique_ptr<model::Network> network;
  model::ModelOptions model;
  model::OptimizerOptions optimizer;
  WorkPlan work;
  std::optional<Task> task;
  ConstantPredictor constant;                ///< of the training data; empty: nobody has looked
  std::optional<Score> constant_score = {};  ///< what it reaches on the validation data, if there are any
  std::uint64_t seed = 1;
  bool shuffle = true;
};

/// Opens and validates the data and builds the network; no communication. Throws UsageError, io::FileError.
/// `deadline`: of its files; outlives them. `known`: what the weights were trained on that the run begins with;
/// nullptr: it begins with new ones, or nobody knows.
Workload prepare_workload(const TrainOptions& options, int world, io::IoDeadline* deadline = nullptr,
                          const SharedData& shared = {}, const KnownData* known = nullptr);
/// How a rank reads its part of the training data, from the first epoch on.
io::PrefetcherOptions reading(const Workload& workload, int rank, int world);

}  // namespace lockstep::app
