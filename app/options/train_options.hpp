/// \file
/// What a training job is told to do, as values: every option is parsed once, into one of these structs. A field's
/// initial value is the option's default.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
#include "model/device.hpp"
#include "model/network.hpp"
#include "model/training/outer_optimizer.hpp"
#include "model/training/schedule.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

enum class DeviceChoice {
  automatic,  ///< GPUs where every rank has one, the CPU where none has
  cpu,
  gpu,  ///< or an error
};

/// Where and how a command that computes does so.
struct ExecutionOptions {
  DeviceChoice device = DeviceChoice::automatic;
  std::optional<model::Precision> precision = {};  ///< nullopt: bf16 on GPUs that have it, else fp32
  int threads = 1;                                 ///< per rank, on the CPU
  comm::Transport transport = comm::Transport::automatic;
  double deadline = 60;                            ///< seconds, for peers
  double io_deadline = 300;                        ///< seconds, for each operation on a file
  bool ring = false;                               ///< NCCL: the ring algorithm and no other
  bool nvls = false;                               ///< NCCL may sum in the switches between GPUs
  comm::WireFormat wire = comm::WireFormat::fp32;  ///< of gradients between GPUs and hosts
  comm::AllReduceChoice all_reduce = {};           ///< of sums between hosts
  bool graphs = true;                              ///< record a step once and replay it
  bool cudnn_attention = true;                     ///< attention by cuDNN, where it has a way
  bool tune = false;                               ///< choose the algorithms of matrix products by timing
  bool share_gpu = false;                          ///< several ranks may use one GPU (for tests)
  std::int64_t bucket_size = 0;                    ///< elements; 0 = static rule
  bool shard_optimizer = false;                    ///< each rank keeps and updates its share
  bool operator==(const ExecutionOptions&) const = default;
};

/// How stored numbers become inputs.
struct Normalization {
  enum class Kind {
    automatic,  ///< range for uint8; of floats per feature where their spread asks for it, else none
    none,
    range,        ///< the value range becomes [0, 1]
    standard,     ///< mean 0, deviation 1, over all numbers
    per_feature,  ///< mean 0, deviation 1: each column of a table, each channel of images
    per_image,
    affine,
  };
  Kind kind = Kind::automatic;
  model::InputTransform affine = {};  ///< of Kind::affine
  bool operator==(const Normalization&) const = default;
};

/// How numbers to predict become what the network learns.
enum class TargetScale {
  automatic,  ///< standard where their spread asks for it
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
  automatic,  ///< all, where all shards together hold less than 4 GiB
  all,
  none,
};

struct DataOptions {
  /// Shard folder, HDF5 folder or file; a folder with train/ (and test/ or validation/) inside also works.
  std::filesystem::path path;
  std::filesystem::path validation;  ///< "" = the sibling test/ or validation/ of the training data, if any
  double validation_share = 0;       ///< > 0: instead, this share of the samples of `path`
  std::string x = "x", y = "y";      ///< HDF5 dataset names
  bool allow_fill = false;           ///< what was never written in HDF5 files of others counts as its fill value
  io::Layout layout = io::Layout::automatic;
  Normalization normalize;
  TargetScale targets = TargetScale::automatic;
  io::UnknownCategories unknown_categories = io::UnknownCategories::error;  ///< of validation data
  AugmentOptions augment;                                                   ///< of training images
  VerifyData verify = VerifyData::automatic;
  ClassSampling sampling = ClassSampling::uniform;
  bool shuffle = true;
  bool shift_windows = true;  ///< of a corpus
  bool operator==(const DataOptions&) const = default;
};

/// What the losses of samples are multiplied by, by their classes; before they are brought to a mean of 1.
struct ClassWeights {
  bool balanced = false;           ///< all classes together count alike, however many samples they have
  std::vector<double> given = {};  ///< of each class; empty: 1 each
  bool any() const noexcept { return balanced || !given.empty(); }
  bool operator==(const ClassWeights&) const = default;
};

struct LossOptions {
  std::optional<model::LossKind> kind = {};  ///< nullopt: as the data demands
  ClassWeights class_weights = {};           ///< in training
  std::string sample_weight = {};            ///< likewise: name of the data set of the samples' weights; "": none
  double label_smoothing = 0;
  bool operator==(const LossOptions&) const = default;
};

/// Amount of work, and what else a step's size decides.
struct WorkOptions {
  std::int64_t batch = 128;  ///< samples per rank and micro-step
  /// > 0: samples per step over all ranks and micro-steps; contradicts an explicit batch.
  std::int64_t global_batch = 0;
  std::int64_t accumulate = 1;
  bool reproducible = false;       ///< the same bits at any number of ranks
  std::int64_t virtual_ranks = 0;  ///< of `reproducible`; 0: by a rule
  double epochs = 0;               ///< may be fractional; 0: by a rule; contradicts an explicit steps
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  std::int64_t reference_batch = 0;  ///< > 0: the learning rate is for this global batch; scaled linearly
  bool operator==(const WorkOptions&) const = default;
};

/// How the ranks agree on the weights: all of them in every step, unless one of these says otherwise.
struct AgreeMode {
  /// > 0: each island (neighbouring ranks that sum their gradients in every step) makes so many steps by itself, a
  /// round, then the islands agree through an outer optimiser.
  std::int64_t local_steps = 0;
  int quorum = 0;             ///< > 0: the gradients of so many ranks make an update, later ones are dropped
  bool asynchronous = false;  ///< servers keep the parameters, and every gradient is an update
  bool uses_servers() const noexcept { return quorum > 0 || asynchronous; }
  bool operator==(const AgreeMode&) const = default;
};

/// Who keeps the parameters where servers do.
struct ServerChoice {
  int count = 0;        ///< ranks that do nothing else, the last ones; 0: `shared`, or by a rule
  bool shared = false;  ///< every rank keeps a part beside its training
  bool operator==(const ServerChoice&) const = default;
};

/// What is done about gradients of weights that others have changed since.
enum class StaleRate {
  keep,        ///< nothing
  scale,       ///< the learning rate is divided by the number of updates in between
  compensate,  ///< the gradient is moved to the new weights
};

/// How the ranks agree on the weights.
struct AgreeOptions : AgreeMode {
  std::int64_t islands = 0;  ///< of local steps; 0: one for each host
  std::int64_t after = 0;    ///< steps that all ranks make together before the first round of local ones
  model::OuterOptimizerOptions outer = {};
  std::int64_t fragments = 1;  ///< of the weights, which islands agree on in turns
  std::int64_t delay = 0;      ///< steps that islands go on while a fragment's sum travels
  /// Islands have weights of their own between the rounds.
  bool streams() const noexcept { return fragments > 1 || delay > 0; }
  ServerChoice servers;
  std::int64_t staleness = -1;  ///< steps that the fastest may be ahead of the slowest; -1: no bound
  StaleRate stale_rate = StaleRate::keep;
  double compensation = 0.04;    ///< of StaleRate::compensate
  std::filesystem::path replay;  ///< a file of arrivals to repeat; "": none
  /// The step after so many is one of islands by themselves.
  bool is_apart(std::int64_t steps_done) const noexcept { return local_steps > 0 && steps_done >= after; }
  /// Steps done when the round of the step after `steps_done` began: a step of all ranks is a round of its own.
  std::int64_t round_begin(std::int64_t steps_done) const noexcept {
    return is_apart(steps_done) ? steps_done - (steps_done - after) % local_steps : steps_done;
  }
  /// The updates that servers make are of sums over ranks, in their order; else of each gradient by itself.
  bool sums_on_servers() const noexcept { return uses_servers() && (quorum > 0 || staleness == 0); }
  bool operator==(const AgreeOptions&) const = default;
};

/// What says which of two validations is better.
enum class BestBy {
  usual,  ///< accuracy of classes and of labels, mean absolute error of numbers, perplexity of text
  loss,
  accuracy,             ///< of classes
  balanced_accuracy,    ///< of classes: the mean of their recalls
  f1_macro,             ///< the mean over classes or labels
  roc_auc,              ///< likewise, of each against all others
  mean_absolute_error,  ///< of numbers
};

struct ValidationOptions {
  std::int64_t every = 0;          ///< steps; 0 = once per epoch; -1 = only at the end
  std::int64_t batch = 250;        ///< samples per evaluation chunk: part of the definition of the result's last bits
  bool average = false;            ///< validation and best/target metric use the averaged weights
  BestBy best_by = BestBy::usual;  ///< the metric of the best checkpoint, of patience and of target_metric
  std::int64_t patience = 0;       ///< > 0: stop after so many validations in a row that were not better
  double min_delta = 0;            ///< better is by more than this
  std::optional<double> target_metric = {};  ///< stop when validation reaches it (accuracy >=; error, perplexity <=)
  bool operator==(const ValidationOptions&) const = default;
};

/// What a run goes on from.
struct Resume {
  enum class From {
    nothing,
    newest,  ///< checkpoint of the run's folder that verifies
    file,
  };
  From from = From::nothing;
  std::filesystem::path file = {};  ///< of From::file
  bool operator==(const Resume&) const = default;
};

/// When checkpoints are written before the end.
struct CheckpointEvery {
  std::int64_t steps = 0;  ///< 0 = once per epoch; -1 = never
  double seconds = 0;      ///< > 0: by the clock instead
  bool operator==(const CheckpointEvery&) const = default;
};

/// What weights a run begins with, besides those that are drawn.
struct StartOptions {
  std::filesystem::path from;             ///< run folder or checkpoint; "": all are drawn
  std::vector<std::string> reinitialize;  ///< patterns of tensors that are drawn all the same: "dense_3/*"
  bool operator==(const StartOptions&) const = default;
};

/// A learning rate of their own for some tensors.
struct RateScale {
  std::string pattern;  ///< of their names
  double factor = 1;    ///< > 0: times the schedule's rate
  bool operator==(const RateScale&) const = default;
};

/// What of the network is trained, and how fast.
struct TuningOptions {
  std::vector<std::string> freeze;     ///< patterns of tensors that stay as they begin
  std::vector<RateScale> rate_scales;  ///< where several match a tensor the last one counts
  bool operator==(const TuningOptions&) const = default;
};

struct RunOptions {
  std::filesystem::path folder;  ///< "" = runs/MODEL-DATE-TIME
  Resume resume;
  bool new_optimizer_state = false;  ///< of this launch, which goes on from a file: its optimiser begins anew
  bool force = false;                ///< start over in an existing run folder
  std::int64_t roll_back = 0;        ///< returns to a good checkpoint that may be made in the life of the run
  double roll_back_factor = 0.5;     ///< of the learning rate, at each of them
  CheckpointEvery checkpoint_every;
  int keep = 3;                         ///< newest checkpoints
  int keep_best = 1;                    ///< besides: those with the best validation metrics
  std::int64_t checkpoint_writers = 0;  ///< ranks that write a part each; 0: by a rule
  TimeLimit time_limit;                 ///< of this launch
  double stop_at = 0;  ///< of this launch: after so many steps, or below 1 that part of all; 0: at the end of the run
  bool operator==(const RunOptions&) const = default;
};

struct ReportOptions {
  std::int64_t every = 0;             ///< steps; 0 = about every second
  std::int64_t histograms_every = 0;  ///< steps; 0 = never
  bool tensorboard = true;
  std::optional<bool> progress = {};  ///< the progress bar; nullopt: on a terminal
  bool operator==(const ReportOptions&) const = default;
};

struct TrainOptions {
  DataOptions data;
  model::NetworkOptions network;
  LossOptions loss;
  model::OptimizerOptions optimizer{.kind = model::OptimizerKind::adam};
  model::ScheduleOptions schedule{.base = 0.001};  ///< without total_steps, before the scaling by reference_batch
  WorkOptions work;
  AgreeOptions agree;
  ValidationOptions validation;
  StartOptions start;
  TuningOptions tuning;
  RunOptions run;
  ReportOptions reports;
  ExecutionOptions execution;
  bool dry_run = false;

  std::vector<std::string> explicitly_set;   ///< long names given on the command line, in the file, by a checkpoint
  std::vector<std::string> from_checkpoint;  ///< those of them that a checkpoint gives
  std::vector<std::string> from_network;     ///< long names whose values are the network's own defaults
  bool was_set(const std::string& name) const;
  /// By the user of this launch.
  bool is_given(const std::string& name) const;
  bool operator==(const TrainOptions&) const = default;
  /// The effective configuration as an INI file that --config reads back to an equal object (but for explicitly_set,
  /// which then names all of them). Every option once; those without effect (the momentum of Adam) as comments.
  std::string to_ini() const;
};

/// As --normalize takes it: "per-image", "affine(0.5,-1)".
std::string to_text(const Normalization& value);
/// These options, whose values are the network's own defaults, have those of every network again.
void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names);
/// The value of the option `name` as its user would write it. `name` is one of train's options.
std::string option_text(const TrainOptions& options, const std::string& name);

/// The options that have an effect, and their values as their user would write them, in the order of the help.
std::vector<std::pair<std::string, std::string>> effective_options(const TrainOptions& options);

/// The options that a checkpoint was trained with, as an INI file. Throws UsageError where it cannot tell.
using StoredConfiguration = std::function<std::string(const std::filesystem::path& checkpoint)>;
/// argv without the program name and the subcommand. Reads the file that --config names, and what --resume goes on
/// from: a checkpoint by `configuration_of`. Throws UsageError or HelpRequested.
TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of);
/// The same, but a checkpoint brings no options.
TrainOptions parse_train(const std::vector<std::string>& arguments);
/// A TrainOptions from the configuration text stored in a run or a checkpoint. Throws UsageError.
TrainOptions train_options_from_ini(const std::string& ini);

/// The options of a run that goes on from a checkpoint with this configuration: what the user of this launch has not
/// given is the checkpoint's, what was decided by itself among it. parse_train() has done so where it found the run's
/// configuration. Execution is as this launch has begun it. Throws UsageError.
TrainOptions going_on(const TrainOptions& given, const std::string& configuration);
/// The options of a run that begins with the weights of such a checkpoint: its network and how numbers become its input
/// are the checkpoint's unless the user gives others. Throws UsageError.
TrainOptions with_network_of(const TrainOptions& given, const std::string& configuration);

}  // namespace lockstep::app
