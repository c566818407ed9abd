/// \file
/// The options of a training job as values. Every option is parsed once, into one of these structs. The initial value
/// of a field is the option's default.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/options/image_options.hpp"
#include "app/options/time_limit.hpp"
#include "app/options/usage_error.hpp"
#include "comm/communicator_options.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "model/backend.hpp"
#include "model/bf16_unit.hpp"
#include "model/device.hpp"
#include "model/network.hpp"
#include "model/training/outer_optimizer.hpp"
#include "model/training/schedule.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

enum class DeviceChoice {
  automatic,  ///< GPUs if every rank has one, the CPU if none has
  cpu,
  gpu,  ///< GPUs, or an error
};

/// Device and execution of commands that compute.
struct ExecutionOptions {
  DeviceChoice device = DeviceChoice::automatic;
  std::optional<model::Precision> precision = {};  ///< nullopt: bf16 on GPUs that have it, else fp32
  std::optional<model::Bf16Unit> bf16_unit = {};   ///< nullopt: the CPU's fastest, if faster than fp32
  int threads = 1;                                 ///< per rank, on the CPU
  comm::Transport transport = comm::Transport::automatic;
  double deadline = 60;                            ///< longest time to wait for peers, in seconds
  double io_deadline = 300;                        ///< longest time for an operation on a file, in seconds
  bool ring = false;                               ///< NCCL uses the ring algorithm only
  bool nvls = false;                               ///< NCCL may sum in the switches between GPUs
  comm::WireFormat wire = comm::WireFormat::fp32;  ///< format of gradients between GPUs and hosts
  comm::AllReduceChoice all_reduce = {};           ///< schedule of sums between hosts
  bool graphs = true;                              ///< record a step once and replay it
  bool cudnn_attention = true;                     ///< attention by cuDNN, if it supports the shape
  bool tune = false;                               ///< choose the algorithms of matrix products by timing
  bool share_gpu = false;                          ///< several ranks may use one GPU (for tests)
  std::int64_t bucket_size = 0;                    ///< elements per gradient bucket; 0 = static rule
  bool shard_optimizer = false;                    ///< each rank keeps the optimiser state of its share and updates it
  bool operator==(const ExecutionOptions&) const = default;
};

/// Conversion of stored numbers to inputs.
struct Normalization {
  enum class Kind {
    automatic,  ///< range for uint8; floats: per feature if their spread requires it, else none
    none,
    range,        ///< the value range becomes [0, 1]
    standard,     ///< mean 0, deviation 1, over all numbers
    per_feature,  ///< mean 0, deviation 1 for each column of a table or each channel of images
    per_image,
    affine,
  };
  Kind kind = Kind::automatic;
  model::InputTransform affine = {};  ///< the map of Kind::affine
  bool operator==(const Normalization&) const = default;
};

/// Conversion of numbers to predict to the network's targets.
enum class TargetScale {
  automatic,  ///< standard if their spread requires it
  none,
  standard,  ///< each target to mean 0, deviation 1
};

/// Choice of the training samples of an epoch.
enum class ClassSampling {
  uniform,   ///< each sample once
  balanced,  ///< the same number of samples of each class
};

/// Choice of the checksums that are recomputed before training.
enum class VerifyData {
  automatic,  ///< all, if all shards together hold at most 4 GiB
  all,
  none,
};

struct DataOptions {
  /// Shard folder, HDF5 folder or file, or a folder that contains train/ (and test/ or validation/).
  std::filesystem::path path;
  std::filesystem::path validation;  ///< "" = the sibling test/ or validation/ of the training data, if any
  double validation_share = 0;       ///< > 0: validate on this share of the samples of `path`
  std::string x = "x", y = "y";      ///< HDF5 dataset names
  bool allow_fill = false;           ///< accept the fill value for unwritten elements of HDF5 files of other programs
  std::optional<std::int64_t> ignore_label = {};  ///< masks: the label of positions that belong to no class
  io::Layouts layout = {};
  Normalization normalize;
  TargetScale targets = TargetScale::automatic;
  io::UnknownCategories unknown_categories =
      io::UnknownCategories::error;  ///< treatment of unknown categories in validation data
  AugmentOptions augment;            ///< augmentation of training images
  VerifyData verify = VerifyData::automatic;
  ClassSampling sampling = ClassSampling::uniform;
  bool shuffle = true;
  std::int64_t window = 0;    ///< series of numbers: input steps of a forecast; 0: no forecast windows
  std::int64_t horizon = 1;   ///< with a window: number of steps to forecast
  bool shift_windows = true;  ///< corpora only: shift the windows in every epoch
  bool operator==(const DataOptions&) const = default;
};

/// Factors of the samples' losses by class, before they are scaled to a mean of 1.
struct ClassWeights {
  bool balanced = false;           ///< each class has the same total weight, whatever its number of samples
  std::vector<double> given = {};  ///< factor of each class; empty: 1 each
  bool any() const noexcept { return balanced || !given.empty(); }
  bool operator==(const ClassWeights&) const = default;
};

struct LossOptions {
  std::optional<model::LossKind> kind = {};  ///< nullopt: chosen by the data
  ClassWeights class_weights = {};           ///< factors in training
  std::string sample_weight = {};            ///< dataset with the weights of training samples; "": none
  double label_smoothing = 0;
  bool operator==(const LossOptions&) const = default;
};

/// Amount of work and size of a step.
struct WorkOptions {
  std::int64_t batch = 128;  ///< samples per rank and micro-step
  /// > 0: samples per step over all ranks and micro-steps; contradicts an explicit `batch`.
  std::int64_t global_batch = 0;
  std::int64_t accumulate = 1;
  bool reproducible = false;       ///< the same bits at any number of ranks
  std::int64_t virtual_ranks = 0;  ///< number of virtual ranks with `reproducible`; 0: by a rule
  double epochs = 0;               ///< may be fractional; 0: by a rule; contradicts explicit `steps`
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  std::int64_t reference_batch = 0;  ///< > 0: global batch that the learning rate is for; scales the rate linearly
  bool operator==(const WorkOptions&) const = default;
};

/// Mode of agreement on the weights. By default, all ranks agree in every step.
struct AgreeMode {
  /// > 0: number of steps of a round. An island is a group of neighbouring ranks that sum their gradients in every
  /// step. In a round each island makes its steps alone; then the islands agree through an outer optimiser.
  std::int64_t local_steps = 0;
  int quorum = 0;             ///< > 0: number of gradients per update; later ones are dropped
  bool asynchronous = false;  ///< servers keep the parameters and make an update for every gradient
  bool uses_servers() const noexcept { return quorum > 0 || asynchronous; }
  bool operator==(const AgreeMode&) const = default;
};

/// Location of the parameters in modes with servers.
struct ServerChoice {
  int count = 0;        ///< number of dedicated servers, the last ranks; 0: `shared`, or by a rule
  bool shared = false;  ///< every rank trains and keeps a part of the parameters
  bool operator==(const ServerChoice&) const = default;
};

/// Treatment of stale gradients: the weights have been updated since their computation began.
enum class StaleRate {
  keep,   ///< no change
  scale,  ///< the learning rate is divided by the number of updates in between
};

/// Options of agreement on the weights.
struct AgreeOptions : AgreeMode {
  std::int64_t islands = 0;  ///< with local steps: number of islands; 0: one per host
  std::int64_t after = 0;    ///< steps that all ranks make together before the first local round
  model::OuterOptimizerOptions outer = {};
  std::int64_t fragments = 1;  ///< number of fragments of the weights; islands agree on one after another
  std::int64_t delay = 0;      ///< steps that islands make while the sum of a fragment is in transit
  /// True if the islands' weights differ even between rounds.
  bool streams() const noexcept { return fragments > 1 || delay > 0; }
  ServerChoice servers;
  std::int64_t staleness = -1;  ///< most steps between the fastest and the slowest rank; -1: no limit
  StaleRate stale_rate = StaleRate::keep;
  std::filesystem::path replay;  ///< file with an order of gradients to repeat; "": none
  /// True if the step after `steps_done` belongs to a local round, in which islands train alone.
  bool is_apart(std::int64_t steps_done) const noexcept { return local_steps > 0 && steps_done >= after; }
  /// Returns the number of steps done before the round that contains the step after `steps_done`. A step of all ranks
  /// is a round by itself.
  std::int64_t round_begin(std::int64_t steps_done) const noexcept {
    return is_apart(steps_done) ? steps_done - (steps_done - after) % local_steps : steps_done;
  }
  /// True if servers update with sums over ranks, in rank order; false if they update with each gradient alone.
  bool sums_on_servers() const noexcept { return uses_servers() && (quorum > 0 || staleness == 0); }
  bool operator==(const AgreeOptions&) const = default;
};

/// Metric that compares two validations.
enum class BestBy {
  usual,  ///< accuracy of classes and of labels, mean IoU of masks, mean absolute error of numbers, perplexity of text
  loss,
  accuracy,             ///< classes only
  balanced_accuracy,    ///< classes only: mean recall over the classes
  f1,                   ///< labels only: over the decisions for all labels together
  f1_macro,             ///< mean F1 over classes or labels
  roc_auc,              ///< mean over classes or labels, each against all others
  mean_absolute_error,  ///< numbers only
  mean_iou,             ///< masks only: mean over the classes of intersection over union of answer and label
};

struct ValidationOptions {
  std::int64_t every = 0;                    ///< steps; 0 = once per epoch; -1 = only at the end
  std::int64_t batch = 250;                  ///< samples per evaluation chunk; affects the last bits of results
  bool average = false;                      ///< validation and best/target metric use the averaged weights
  BestBy best_by = BestBy::usual;            ///< the metric of the best checkpoint, of patience and of target_metric
  std::int64_t patience = 0;                 ///< > 0: stop after this many consecutive validations without improvement
  double min_delta = 0;                      ///< smallest difference that counts as an improvement
  std::optional<double> target_metric = {};  ///< stop when validation reaches it (accuracy >=; error, perplexity <=)
  bool operator==(const ValidationOptions&) const = default;
};

/// The checkpoint that a run resumes.
struct Resume {
  enum class From {
    nothing,
    newest,  ///< newest valid checkpoint in the run's folder
    file,
  };
  From from = From::nothing;
  std::filesystem::path file = {};  ///< the file for From::file
  bool operator==(const Resume&) const = default;
};

/// Interval of checkpoints. The end of a run always has one.
struct CheckpointEvery {
  std::int64_t steps = 0;  ///< 0 = once per epoch; -1 = never
  double seconds = 0;      ///< > 0: interval by the clock, which replaces `steps`
  bool operator==(const CheckpointEvery&) const = default;
};

/// The initial weights of a run that come from a file instead of random numbers.
struct StartOptions {
  std::filesystem::path from;             ///< run folder or checkpoint; "": all weights are random
  std::vector<std::string> reinitialize;  ///< patterns of tensors that are random nevertheless: "dense_3/*"
  bool operator==(const StartOptions&) const = default;
};

/// A separate learning rate for some tensors.
struct RateScale {
  std::string pattern;  ///< pattern of the tensors' names
  double factor = 1;    ///< > 0: multiplies the schedule's rate
  bool operator==(const RateScale&) const = default;
};

/// Choice of the trained tensors, and their learning rates.
struct TuningOptions {
  std::vector<std::string> freeze;     ///< patterns of tensors that keep their initial values
  std::vector<RateScale> rate_scales;  ///< the last one that matches a tensor counts
  bool operator==(const TuningOptions&) const = default;
};

struct RunOptions {
  std::filesystem::path folder;  ///< "" = runs/MODEL-DATE-TIME
  Resume resume;
  bool new_optimizer_state = false;  ///< this launch resumes from a file, with a new optimiser state
  bool force = false;                ///< start over in an existing run folder
  std::int64_t roll_back = 0;        ///< largest number of roll-backs in all launches of the run
  double roll_back_factor = 0.5;     ///< multiplies the learning rate at each roll-back
  CheckpointEvery checkpoint_every;
  int keep = 3;                         ///< number of newest checkpoints kept
  int keep_best = 1;                    ///< additional checkpoints kept: those with the best validation metrics
  std::int64_t checkpoint_writers = 0;  ///< number of ranks that each write a part; 0: by a rule
  TimeLimit time_limit;                 ///< limit of this launch
  double stop_at = 0;  ///< last step of this launch; below 1: as a share of the run's steps; 0: the end of the run
  bool operator==(const RunOptions&) const = default;
};

struct ReportOptions {
  std::int64_t every = 0;             ///< steps; 0 = about every second
  std::int64_t histograms_every = 0;  ///< steps; 0 = never
  bool tensorboard = true;
  std::optional<bool> progress = {};  ///< the progress bar; nullopt: on a terminal
  bool operator==(const ReportOptions&) const = default;
};

/// Names of the options that have been set, by source.
struct GivenOptions {
  std::vector<std::string> explicitly_set;   ///< on the command line, in the file or by a checkpoint
  std::vector<std::string> from_checkpoint;  ///< the subset of explicitly_set that a checkpoint gives
  std::vector<std::string> from_network;     ///< options with defaults of the network
  bool was_set(const std::string& name) const;
  /// True if the user of this launch has given it, on the command line or in the file.
  bool is_given(const std::string& name) const;
  /// True if it has the network's default.
  bool is_from_network(const std::string& name) const;
  bool operator==(const GivenOptions&) const = default;
};

/// The learning problem: the samples, the network, and the loss of its answers. The format of the data and the
/// description of a network depend on nothing else.
struct LearningProblem : GivenOptions {
  DataOptions data;
  model::NetworkOptions network;
  LossOptions loss;
  bool operator==(const LearningProblem&) const = default;
};

/// Returns the number of attention heads that the user has given for the network; 0: none are given.
std::int64_t given_heads(const LearningProblem& problem);

/// The optimiser, unless the user or the network chooses another.
inline constexpr model::OptimizerKind kDefaultOptimizer = model::OptimizerKind::adam;

struct TrainOptions : LearningProblem {
  model::OptimizerOptions optimizer{.kind = kDefaultOptimizer};
  model::ScheduleOptions schedule{.base = 0.001};  ///< without total_steps; not scaled by reference_batch yet
  WorkOptions work;
  AgreeOptions agree;
  ValidationOptions validation;
  StartOptions start;
  TuningOptions tuning;
  RunOptions run;
  ReportOptions reports;
  ExecutionOptions execution;
  bool dry_run = false;

  std::string network_note;  ///< warning that the user's file differs from a resumed run's network; "": none
  bool operator==(const TrainOptions&) const = default;
  /// Returns the effective configuration as an INI file. --config reads it back to equal options, which then count as
  /// explicitly set. Every option appears once; options without effect (the momentum of Adam) are comments.
  std::string to_ini() const;
};

/// Returns the text for --normalize: "per-image", "affine(0.5,-1)".
std::string to_text(const Normalization& value);
/// Resets the options `names`, which have defaults of the network, to the general defaults.
void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names);
/// Returns the value of the option `name` of train, in the user's notation.
std::string option_text(const TrainOptions& options, const std::string& name);
/// Returns the mode of agreement, such as "local=32, islands 4"; "" if all ranks agree in every step.
std::string agreement_text(const TrainOptions& options);
/// Returns titles and texts of options that differ from their defaults and influence what is learnt: agreement,
/// sampling, weights of samples, frozen tensors.
std::vector<std::pair<std::string, std::string>> unusual_options(const TrainOptions& options);

}  // namespace lockstep::app
