/// \file
/// The workload of a job: data, network, loss, schedule and amount of work, decided before any memory is allocated.
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
#include "io/datasets/split_dataset.hpp"
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

/// Folders of the samples.
struct DataPaths {
  std::filesystem::path training;
  std::filesystem::path validation;  ///< empty: none
};
/// True for data made by `lockstep pack`, whose datasets are x and y.
bool is_packed_data(const std::filesystem::path& path);
/// A folder that contains train/ stands for its train/ and, if present, its validation/ or test/.
DataPaths resolve_data_paths(const DataOptions& options);

/// The model's name for a type of stored samples; throws std::invalid_argument on types that no model accepts.
model::ElementType element_type(io::FileType type);
/// View of `count` samples or targets in host memory that is only read.
model::Tensor tensor_of(std::span<const std::byte> elements, io::FileType type, std::int64_t count);

/// True for masks some of whose positions may belong to no class: ignored labels, or pixels from outside of images.
bool may_lack_classes(const io::DatasetInfo& info, const model::ModelOptions& options);

// Results of options and data together. Throw UsageError if the two do not fit.
model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info);
model::LossKind loss_kind(const LossOptions& options, const io::DatasetInfo& info);
/// The same, or of a network file that names its losses main_loss() (network_losses.hpp).
model::LossKind loss_kind(const TrainOptions& trained, const io::DatasetInfo& info);
/// Conversion of images to a network's input; nullopt for plain numbers.
std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info);
/// Shape of a network's input: images after augmentation, tokens as windows.
model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation);

/// Shape of samples that are in no file, for a network file with several inputs; nullopt for other networks. Throws
/// UsageError if the file leaves an extent to the data.
std::optional<model::SampleShape> shape_of_inputs(const model::NetworkOptions& network, std::int64_t outputs);

/// The datasets that a network reads: the same for training, validation and evaluation.
struct DataFormat {
  std::string network = {};               ///< name of the network in messages
  std::int64_t context = 0;               ///< tokens of a sample; 0: samples are read as they are stored
  std::string x, y;                       ///< HDF5 dataset names; y is "" for tokens
  std::vector<std::string> inputs = {};   ///< names that the network has for its inputs, in its order
  std::vector<std::string> targets = {};  ///< targets that the network has learnt; empty: those of the data
  std::string weight = {};                ///< likewise; "": none
  io::Unlabelled unlabelled = io::Unlabelled::refused;
  io::Gaps gaps = {};
  std::uint64_t seed = 1;  ///< seed for the beginnings of samples of tokens
  bool shift_windows = true;
  bool is_windowed = false;  ///< windows will be made of the samples (windowed())
  io::Layouts layout = {};
  io::LabelMeaning labels =
      io::LabelMeaning::automatic;                 ///< meaning of labels in data made by other programs, if known
  std::optional<std::int64_t> ignored_label = {};  ///< masks: label of positions that belong to no class
};
/// `before`: the checkpoint that the run resumes, or whose network it uses: labels keep the meaning they have there.
DataFormat data_format(const TrainOptions& options, const io::DataDescription* before = nullptr);
/// Inspects data made by other programs before this process opens them, in a separate process of this program. Throws
/// io::FileError.
void inspect_data(const DataFormat& format, const std::filesystem::path& path);
/// Opens samples, or a corpus for a network that reads tokens. Targets are not converted and may be float64: a caller
/// that trains on them puts a StandardizedDataset in front. Throws UsageError if one is needed and the other is
/// present. `deadline` outlives the dataset; nullptr: none.
std::unique_ptr<io::Dataset> open_dataset(const DataFormat& format, const std::filesystem::path& path,
                                          io::IoDeadline* deadline = nullptr, const SharedData& shared = {});

/// Windows over the series in `data`, as the options want them; `data` itself without --window. to_the_end: see
/// io::WindowOptions.
std::unique_ptr<io::Dataset> windowed(const DataOptions& options, std::unique_ptr<io::Dataset> data,
                                      const std::filesystem::path& path, bool to_the_end = false);
/// Part of the samples of `data`: by time where they are windows, else by chance.
std::unique_ptr<io::Dataset> part_of(std::shared_ptr<io::Dataset> data, double share, io::SplitDataset::Part part);

/// True if samples of a step follow those of the previous step, sequence by sequence: recurrent state needs it.
bool is_recurrent(const model::Network& network) noexcept;
/// Throws UsageError if the data at `path` have samples only: nothing to learn from or to compare with.
void require_labels(const io::DatasetInfo& info, const std::filesystem::path& path);

/// A recurring event: after each step for which step + shift is a multiple of `steps`.
struct Interval {
  std::int64_t steps = 0;  ///< 0: never
  std::int64_t shift = 0;
  /// True if the event occurs after a step beyond the first `before` and within the first `after`.
  bool lies_between(std::int64_t before, std::int64_t after) const noexcept {
    return steps > 0 && (after + shift) / steps > (before + shift) / steps;
  }
  /// The step of the next event, after `done` steps.
  std::int64_t next(std::int64_t done) const noexcept { return ((done + shift) / steps + 1) * steps - shift; }
};

/// Amount of work of a job.
struct WorkPlan {
  std::int64_t global_batch = 1;  ///< samples per step, over all ranks and micro-steps
  std::int64_t accumulate = 1;    ///< micro-steps of a step; with virtual ranks: those of the rank with the most
  /// > 0: number of parts of a step, each computed alone, independent of the number of ranks (--reproducible). Rank r
  /// of R computes parts [r V / R, (r + 1) V / R).
  std::int64_t virtual_ranks = 0;
  std::int64_t largest_part = 1;    ///< largest number of samples of one rank in one micro-step
  std::int64_t most_sequences = 1;  ///< largest number of sequences of one rank, in all its micro-steps
  std::int64_t epoch_samples = 1;   ///< positions of an epoch
  std::int64_t steps_per_epoch = 1;
  double epochs = 1;  ///< length of the job; has no meaning if it is given in steps
  std::int64_t total_steps = 1;
  /// Differs from 0 if earlier steps had another global batch: after step n, (n + epoch_shift) / steps_per_epoch epochs
  /// are done.
  std::int64_t epoch_shift = 0;
  Interval evaluate_every;    ///< before the end
  Interval checkpoint_every;  ///< interval in steps, before the end
  double epochs_after(std::int64_t steps) const noexcept {
    return static_cast<double>(steps + epoch_shift) / static_cast<double>(steps_per_epoch);
  }
};
/// A position in the data: the beginning of a step, or the end of an epoch.
struct DataCursor {
  std::int64_t epoch = 0, position = 0;
};
/// The position `steps` steps after `from`, as in a step's MicroBatch.
DataCursor cursor_after(const WorkPlan& work, DataCursor from, std::int64_t steps);

/// A rank's sequences among those of the global batch: the same ones in every step.
struct SequenceShare {
  std::int64_t all = 0, first = 0, count = 0;
};
/// A rank's share of a step.
struct RankShare {
  std::int64_t micro_steps = 1;
  std::int64_t first_virtual_rank = 0;  ///< with virtual ranks: one for each micro-step
  SequenceShare sequences;
};
RankShare share_of(const WorkPlan& work, int rank, int world);
/// Steps for `samples` samples; `stateful`: the network is recurrent.
std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch, bool stateful);
/// `recurrent`: the network's kind if its sequences continue from batch to batch. Throws UsageError if such batches are
/// wider than the data.
WorkPlan work_plan(const TrainOptions& options, std::int64_t samples, int world,
                   const model::NetworkKind* recurrent = nullptr);
/// Adjusts the work of a run that continues at `cursor` after `step` steps, whatever their global batch: it ends after
/// its epochs.
void go_on_at(WorkPlan& work, const TrainOptions& options, std::int64_t step, DataCursor cursor);

/// Training data of the checkpoint that a run begins with.
struct KnownData {
  enum class Fit {
    required,  ///< the run resumes with the same data, or begins with all of the weights
    wanted,    ///< some weights are drawn anew: differing columns cause a warning
  };
  io::DataDescription description;
  Fit fit = Fit::required;
};

struct Workload {
  /// The options without those of the network's defaults that do not suit the data; nullopt: a benchmark without data.
  std::optional<TrainOptions> options = {};
  DataPaths paths;
  std::unique_ptr<io::Dataset> training;
  std::unique_ptr<io::Dataset> validation;  ///< may be null; uses the training data's class numbers
  std::vector<std::string> notes = {};      ///< mappings of columns and classes, a sentence each
  std::vector<std::string> warnings = {};   ///< likely mistakes in the data, a sentence each
  LossWeights weights;                      ///< weights of the training samples' losses
  io::FeatureScale features, targets;       ///< scales of the standardised data; empty: not standardised
  model::NetworkOptions network_options;
  std::unique_ptr<model::Network> network;
  model::ModelOptions model;
  model::OptimizerOptions optimizer;
  WorkPlan work;
  std::optional<Task> task;
  ConstantPredictor constant;                ///< predictor for the training data; empty: not computed
  std::optional<Score> constant_score = {};  ///< its score on the validation data, if there are any
  std::uint64_t seed = 1;
  bool shuffle = true;
};

/// Opens and validates the data and builds the network; no communication. Throws UsageError, io::FileError. `deadline`:
/// limits operations on its files; outlives them. `known`: training data of the run's initial weights; nullptr: the
/// weights are new, or their training data are not known.
Workload prepare_workload(const TrainOptions& options, int world, io::IoDeadline* deadline = nullptr,
                          const SharedData& shared = {}, const KnownData* known = nullptr);
/// The wider of the types of training and validation samples: memory for samples has room for both.
model::ElementType widest_sample_type(const Workload& workload);
/// Options for a rank to read its part of the training data, from the first epoch on.
io::PrefetcherOptions reading(const Workload& workload, int rank, int world);

}  // namespace lockstep::app
