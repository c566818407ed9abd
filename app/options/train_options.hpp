/// \file
/// The options of a training job as values: every option is parsed once, into one of these structs. A field's initial
/// value is the option's default.
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
  double deadline = 60;                            ///< time to wait for peers, in seconds
  double io_deadline = 300;                        ///< time for each operation on a file, in seconds
  bool ring = false;                               ///< NCCL uses the ring algorithm only
  bool nvls = false;                               ///< NCCL may sum in the switches between GPUs
  comm::WireFormat wire = comm::WireFormat::fp32;  ///< format of gradients between GPUs and hosts
  comm::AllReduceChoice all_reduce = {};           ///< schedule of sums between hosts
  bool graphs = true;                              ///< record a step once and replay it
  bool cudnn_attention = true;                     ///< attention by cuDNN, if it supports the shape
  bool tune = false;                               ///< choose the algorithms of matrix products by timing
  bool share_gpu = false;                          ///< several ranks may use one GPU (for tests)
  std::int64_t bucket_size = 0;                    ///< elements; 0 = static rule
  bool shard_optimizer = false;                    ///< each rank keeps and updates its share
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

/// Which training samples an epoch has.
enum class ClassSampling {
  uniform,   ///< each of them once
  balanced,  ///< as many of each class
};

/// Which checksums are recomputed before training.
enum class VerifyData {
  automatic,  ///< all, if all shards together hold less than 4 GiB
  all,
  none,
};

struct DataOptions {
  /// Shard folder, HDF5 folder or file, or a folder that contains train/ (and test/ or validation/).
  std::filesystem::path path;
  std::filesystem::path validation;  ///< "" = the sibling test/ or validation/ of the training data, if any
  double validation_share = 0;       ///< > 0: instead, this share of the samples of `path`
  std::string x = "x", y = "y";      ///< HDF5 dataset names
  bool allow_fill = false;           ///< unwritten elements of HDF5 files by other programs count as the fill value
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
  std::int64_t window = 0;    ///< series of numbers: steps that a forecast sees; 0: samples are read as they are
  std::int64_t horizon = 1;   ///< with a window: steps that are forecast
  bool shift_windows = true;  ///< corpora only: shift the windows in every epoch
  bool operator==(const DataOptions&) const = default;
};

/// Factors of the samples' losses by class, before they are scaled to a mean of 1.
struct ClassWeights {
  bool balanced = false;           ///< all classes together count alike, whatever their numbers of samples
  std::vector<double> given = {};  ///< factor of each class; empty: 1 each
  bool any() const noexcept { return balanced || !given.empty(); }
  bool operator==(const ClassWeights&) const = default;
};

struct LossOptions {
  std::optional<model::LossKind> kind = {};  ///< nullopt: chosen by the data
  ClassWeights class_weights = {};           ///< factors in training
  std::string sample_weight = {};            ///< name of the dataset of the samples' weights in training; "": none
  double label_smoothing = 0;
  bool operator==(const LossOptions&) const = default;
};

/// Amount of work and size of a step.
struct WorkOptions {
  std::int64_t batch = 128;  ///< samples per rank and micro-step
  /// > 0: samples per step over all ranks and micro-steps; contradicts an explicit batch.
  std::int64_t global_batch = 0;
  std::int64_t accumulate = 1;
  bool reproducible = false;       ///< the same bits at any number of ranks
  std::int64_t virtual_ranks = 0;  ///< number of virtual ranks with `reproducible`; 0: by a rule
  double epochs = 0;               ///< may be fractional; 0: by a rule; contradicts an explicit steps
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  std::int64_t reference_batch = 0;  ///< > 0: the learning rate belongs to this global batch and is scaled linearly
  bool operator==(const WorkOptions&) const = default;
};

/// Mode of agreement on the weights: all ranks in every step, unless a field says otherwise.
struct AgreeMode {
  /// > 0: each island (neighbouring ranks that sum their gradients in every step) makes this many steps by itself, a
  /// round; then the islands agree through an outer optimiser.
  std::int64_t local_steps = 0;
  int quorum = 0;             ///< > 0: the gradients of this many ranks make an update; later ones are dropped
  bool asynchronous = false;  ///< servers keep the parameters, and every gradient is an update
  bool uses_servers() const noexcept { return quorum > 0 || asynchronous; }
  bool operator==(const AgreeMode&) const = default;
};

/// Location of the parameters in modes with servers.
struct ServerChoice {
  int count = 0;        ///< number of dedicated server ranks, the last ones; 0: `shared`, or by a rule
  bool shared = false;  ///< every rank keeps a part besides its training
  bool operator==(const ServerChoice&) const = default;
};

/// Treatment of stale gradients, whose weights have changed since.
enum class StaleRate {
  keep,   ///< nothing
  scale,  ///< the learning rate is divided by the number of updates in between
};

/// Options of agreement on the weights.
struct AgreeOptions : AgreeMode {
  std::int64_t islands = 0;  ///< number of islands with local steps; 0: one for each host
  std::int64_t after = 0;    ///< steps that all ranks make together before the first local round
  model::OuterOptimizerOptions outer = {};
  std::int64_t fragments = 1;  ///< number of fragments of the weights, on which islands agree in turns
  std::int64_t delay = 0;      ///< steps that islands continue while a fragment's sum is in transit
  /// True if the islands' weights differ even between rounds.
  bool streams() const noexcept { return fragments > 1 || delay > 0; }
  ServerChoice servers;
  std::int64_t staleness = -1;  ///< limit of steps between the fastest and the slowest rank; -1: none
  StaleRate stale_rate = StaleRate::keep;
  std::filesystem::path replay;  ///< a file of arrivals to repeat; "": none
  /// The step after so many is one of islands by themselves.
  bool is_apart(std::int64_t steps_done) const noexcept { return local_steps > 0 && steps_done >= after; }
  /// Number of steps done when the round of the step after `steps_done` began. A step of all ranks is a round of its
  /// own.
  std::int64_t round_begin(std::int64_t steps_done) const noexcept {
    return is_apart(steps_done) ? steps_done - (steps_done - after) % local_steps : steps_done;
  }
  /// True if servers update with sums over ranks, in their order; false if with each gradient by itself.
  bool sums_on_servers() const noexcept { return uses_servers() && (quorum > 0 || staleness == 0); }
  bool operator==(const AgreeOptions&) const = default;
};

/// Metric that compares two validations.
enum class BestBy {
  usual,  ///< accuracy of classes and of labels, mean IoU of masks, mean absolute error of numbers, perplexity of text
  loss,
  accuracy,             ///< classes only
  balanced_accuracy,    ///< classes only: the mean of their recalls
  f1,                   ///< labels only: of all of them together
  f1_macro,             ///< the mean over classes or labels
  roc_auc,              ///< mean over classes or labels, each against all others
  mean_absolute_error,  ///< numbers only
  mean_iou,             ///< masks only: the mean over the classes of the overlap of answer and label over their union
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
    newest,  ///< newest checkpoint of the run's folder that verifies
    file,
  };
  From from = From::nothing;
  std::filesystem::path file = {};  ///< the file for From::file
  bool operator==(const Resume&) const = default;
};

/// Interval of checkpoints before the end.
struct CheckpointEvery {
  std::int64_t steps = 0;  ///< 0 = once per epoch; -1 = never
  double seconds = 0;      ///< > 0: interval by the clock, which replaces `steps`
  bool operator==(const CheckpointEvery&) const = default;
};

/// The initial weights of a run that are not drawn.
struct StartOptions {
  std::filesystem::path from;             ///< run folder or checkpoint; "": all weights are drawn
  std::vector<std::string> reinitialize;  ///< patterns of tensors that are drawn nevertheless: "dense_3/*"
  bool operator==(const StartOptions&) const = default;
};

/// A separate learning rate for some tensors.
struct RateScale {
  std::string pattern;  ///< pattern of the tensors' names
  double factor = 1;    ///< > 0: factor of the schedule's rate
  bool operator==(const RateScale&) const = default;
};

/// The trained tensors of the network and their rates.
struct TuningOptions {
  std::vector<std::string> freeze;     ///< patterns of tensors that keep their initial values
  std::vector<RateScale> rate_scales;  ///< if several match a tensor the last one counts
  bool operator==(const TuningOptions&) const = default;
};

struct RunOptions {
  std::filesystem::path folder;  ///< "" = runs/MODEL-DATE-TIME
  Resume resume;
  bool new_optimizer_state = false;  ///< this launch resumes from a file with a fresh optimiser state
  bool force = false;                ///< start over in an existing run folder
  std::int64_t roll_back = 0;        ///< largest number of returns to a good checkpoint in the life of the run
  double roll_back_factor = 0.5;     ///< factor of the learning rate at each return
  CheckpointEvery checkpoint_every;
  int keep = 3;                         ///< number of newest checkpoints kept
  int keep_best = 1;                    ///< additional checkpoints kept: those with the best validation metrics
  std::int64_t checkpoint_writers = 0;  ///< ranks that each write a part; 0: by a rule
  TimeLimit time_limit;                 ///< limit of this launch
  double stop_at =
      0;  ///< end of this launch: after this many steps, or below 1 after this share of all; 0: at the end of the run
  bool operator==(const RunOptions&) const = default;
};

struct ReportOptions {
  std::int64_t every = 0;             ///< steps; 0 = about every second
  std::int64_t histograms_every = 0;  ///< steps; 0 = never
  bool tensorboard = true;
  std::optional<bool> progress = {};  ///< the progress bar; nullopt: on a terminal
  bool operator==(const ReportOptions&) const = default;
};

/// Long names of the options that have been given, by what gives them.
struct GivenOptions {
  std::vector<std::string> explicitly_set;   ///< on the command line, in the file or by a checkpoint
  std::vector<std::string> from_checkpoint;  ///< the subset of explicitly_set that a checkpoint gives
  std::vector<std::string> from_network;     ///< options that have the network's own defaults
  bool was_set(const std::string& name) const;
  /// True if the user of this launch has given it.
  bool is_given(const std::string& name) const;
  /// True if it has the network's own default.
  bool is_from_network(const std::string& name) const;
  bool operator==(const GivenOptions&) const = default;
};

struct TrainOptions : GivenOptions {
  DataOptions data;
  model::NetworkOptions network;
  LossOptions loss;
  model::OptimizerOptions optimizer{.kind = model::OptimizerKind::adam};
  model::ScheduleOptions schedule{.base = 0.001};  ///< no total_steps; before the scaling by reference_batch
  WorkOptions work;
  AgreeOptions agree;
  ValidationOptions validation;
  StartOptions start;
  TuningOptions tuning;
  RunOptions run;
  ReportOptions reports;
  ExecutionOptions execution;
  bool dry_run = false;

  std::string network_note;  ///< a resumed run's network is not that of the user's file any more; "": it is
  bool operator==(const TrainOptions&) const = default;
  /// The effective configuration as an INI file that --config reads back to an equal object (except explicitly_set,
  /// which then names all options). Every option appears once; those without effect (the momentum of Adam) as comments.
  std::string to_ini() const;
};

/// Text for --normalize: "per-image", "affine(0.5,-1)".
std::string to_text(const Normalization& value);
/// Resets these options, which have the network's own defaults, to the general defaults.
void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names);
/// The value of the option `name` in the user's notation. `name` is one of train's options.
std::string option_text(const TrainOptions& options, const std::string& name);
/// The same, unless it is the default; otherwise "".
std::string unusual_text(const TrainOptions& options, const std::string& name);
/// Mode of agreement, unless all ranks agree in every step: "local=32, islands 4"; otherwise "".
std::string agreement_text(const TrainOptions& options);

/// The options that have an effect, and their values in the user's notation, in the order of the help.
std::vector<std::pair<std::string, std::string>> effective_options(const TrainOptions& options);

}  // namespace lockstep::app
