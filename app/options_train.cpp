#include "app/options_train.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

#include "app/image_options.hpp"
#include "app/nearest_name.hpp"
#include "app/wall_time.hpp"
#include "model/initialize.hpp"
#include "model/network.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kUsage =
    "Usage: mpirun -np RANKS lockstep train --data FOLDER [options]\n"
    "\n"
    "Trains a network on RANKS processes that act as one: each computes its part of every batch, the\n"
    "gradients are summed, all make the same step. Without mpirun it is a world of one rank.\n";

constexpr std::string_view kExamples =
    "\n"
    "Examples\n"
    "  lockstep train --data shards/fashion\n"
    "      the whole job on one core: a multi-layer perceptron, one epoch, into a new folder under runs/\n"
    "  mpirun -np 4 lockstep train --data shards/fashion --hidden 512,256 --optimizer adam \\\n"
    "      --learning-rate 0.001 --epochs 10 --run runs/adam\n"
    "      four ranks, 128 samples each per step, ten epochs\n"
    "  mpirun -np 4 lockstep train --resume --run runs/adam\n"
    "      goes on where that run stopped\n"
    "  mpirun -np 8 lockstep train --config runs/adam/config.ini --run runs/again --seed 2\n"
    "      the same run with another seed\n"
    "  mpirun -np 8 lockstep train --data shards/fashion --dry-run\n"
    "      prints parameters, memory and work per step, and stops\n";

/// Accepts what model::parse_initializer accepts; its list is for the hint.
std::string check_initializer(const std::string& text) {
  if (text == "auto") return "";
  try {
    model::parse_initializer(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return fmt::format("is not an initialisation: {}", error.what());
  }
}

std::string check_normalize(const std::string& text) {
  static const std::vector<std::string> names{"auto", "none", "range", "standard", "per-image"};
  if (std::find(names.begin(), names.end(), text) != names.end()) return "";
  constexpr std::string_view kAffine = "affine(";
  if (!text.starts_with(kAffine)) {
    return fmt::format("is not one of {} and affine(SCALE,SHIFT){}", fmt::join(names, ", "), did_you_mean(text, names));
  }
  double scale = 0, shift = 0;
  const char* const last = text.data() + text.size();
  const auto [comma, scale_error] = std::from_chars(text.data() + kAffine.size(), last, scale);
  const bool has_comma = scale_error == std::errc() && comma != last && *comma == ',';
  if (has_comma) {
    const auto [end, shift_error] = std::from_chars(comma + 1, last, shift);
    const bool finite = scale - scale == 0 && shift - shift == 0;  // neither NaN nor infinite
    if (shift_error == std::errc() && finite && std::string_view(end, last) == ")") return "";
  }
  return "is not of the form affine(SCALE,SHIFT) with two numbers, as in affine(0.00392,-0.5)";
}

std::string check_boundaries(const std::string& text) {
  std::int64_t before = -1;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data(); at < last;) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(at, last, value);
    if (error != std::errc()) return "";  // "none"; that the list holds numbers has been checked
    if (value <= before) return "must be in ascending order";
    before = value;
    at = end + 1;
  }
  return "";
}

std::string check_time_limit(const std::string& text) {
  if (text == "auto" || text == "none" || parse_time_limit(text)) return "";
  return "is neither auto nor none nor a time above 0: seconds, or [D-]HH:MM[:SS] as in 11:30 or 1-00:00:00";
}

OptionTable train_table(TrainOptions& options) {
  OptionTable table("lockstep train");
  add_train_options(table, options);
  return table;
}

std::string check_augment(const std::string& text) {
  try {
    parse_augmentation(text, {.height = 1 << 20, .width = 1 << 20, .channels = 1});
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// `--resume --run FOLDER` alone continues with that run's configuration: its file, or "" when the run has none or the
/// user describes the whole job anew.
std::filesystem::path configuration_to_continue(const CommandLine& line) {
  const auto value_of = [&](std::string_view name) -> const std::string* {
    const auto given =
        std::find_if(line.options.begin(), line.options.end(), [&](const auto& o) { return o.name == name; });
    return given == line.options.end() ? nullptr : &given->value;
  };
  const std::string* const run = value_of("run");
  if (run == nullptr || value_of("resume") == nullptr || value_of("data") != nullptr) return {};
  const std::filesystem::path file = std::filesystem::path(*run) / "config.ini";
  return std::filesystem::exists(file) ? file : std::filesystem::path();
}

}  // namespace

void add_train_options(OptionTable& table, TrainOptions& options) {
  add_data_options(table, options);
  add_network_options(table, options);
  add_optimizer_options(table, options);
  add_learning_rate_options(table, options);
  add_amount_options(table, options);
  add_batch_options(table, options);
  add_validation_options(table, options);
  add_run_options(table, options);
  add_report_options(table, options);
  add_execution_options(table, options.execution);
  add_step_options(table, options);
  table.add("dry-run", options.dry_run, "print the plan (parameters, memory, work per step, buckets) and stop");
}

void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples) {
  const CommandLine line = read_command_line(table, arguments, true);
  if (line.help) throw HelpRequested(format_help(table, usage, examples, true));
  if (!line.config.empty()) {
    apply_ini_file(line.config, table);
  } else if (const std::filesystem::path stored = configuration_to_continue(line); !stored.empty()) {
    apply_ini_file(stored, table);
  }
  apply(line, table);
  apply_network_defaults(options, table);
  table.check_relations();
  if (options.schedule == "step" && options.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  options.explicitly_set = table.given();
}

void apply_network_defaults(const TrainOptions& options, OptionTable& table) {
  for (const auto& [name, value] : model::network_kind(options.model).defaults) {
    Option* option = table.find(name);
    if (option == nullptr || option->source() != OptionSource::default_value) continue;
    option->assign(std::string(value), OptionSource::default_value, fmt::format("{} of {}", name, options.model));
  }
}

std::string reject_empty(const std::string& text) { return text.empty() ? "is not accepted" : ""; }

void add_data_options(OptionTable& table, TrainOptions& options) {
  table.group("Data");
  table.add("data", options.data, "PATH",
            "what to train on: a shard folder made by `lockstep pack`, a folder of HDF5 files or one such file; or a "
            "folder with train/ and test/ or validation/ inside");
  table.add(
      "validation", options.validation, "PATH",
      "what to validate on, in the same forms; default: validation/ or test/ inside --data, where there is a train/");
  table.add("x", options.x, "NAME", "HDF5 dataset that holds the samples, for files made by others")
      .check(reject_empty);
  table.add("y", options.y, "NAME", "HDF5 dataset that holds the labels or targets").check(reject_empty);
  table
      .add("normalize", options.normalize, "HOW",
           "how stored numbers become inputs: auto (range for bytes, none for floats), none, range (the value range "
           "becomes 0 to 1), standard (mean 0, deviation 1), per-image (each image to mean 0, deviation 1), "
           "affine(SCALE,SHIFT)")
      .check(check_normalize);
  table
      .add("augment", options.augment, "HOW",
           "random changes of training images, comma-separated: pad=N, crop=N or crop=HxW, area=SHARE (a random "
           "rectangle of at least this share, scaled to the crop), flip, brightness=V, contrast=LOW:HIGH; none. "
           "Validation sees the central crop")
      .check(check_augment);
  table
      .add("verify", options.verify, "WHEN",
           "recompute checksums of the shards before training; auto: where they hold under 4 GiB in all")
      .one_of({"auto", "all", "none"});
  table.add("shuffle", options.shuffle, "visit the samples in a new order each epoch");
}

void add_network_options(OptionTable& table, TrainOptions& options) {
  table.group("Network");
  table.add("model", options.model, "NAME", "the network").one_of(model::network_names());
  table
      .add("hidden", options.hidden, "WIDTHS",
           "mlp: widths of the hidden layers, comma-separated (512,512); lstm: one width (200)")
      .at_least(1)
      .only_with("model", {"mlp", "lstm"});
  table
      .add("depth", options.depth, "LAYERS",
           "resnet: 20, 32 or 56 for small images, 18, 34 or 50 for large ones; 0: 20")
      .at_least(0)
      .only_with("model", {"resnet"});
  table.add("layers", options.layers, "N", "lstm: recurrent layers (2); gpt: blocks (4); 0: these")
      .at_least(0)
      .only_with("model", {"lstm", "gpt"});
  table.add("width", options.width, "N", "gpt: of the residual stream; 0: 128").at_least(0).only_with("model", {"gpt"});
  table.add("heads", options.heads, "N", "gpt: of each attention; 0: 4").at_least(0).only_with("model", {"gpt"});
  table.add("unroll", options.unroll, "TOKENS", "lstm: steps between updates; its state goes on beyond them")
      .at_least(1)
      .only_with("model", {"lstm"});
  table.add("context", options.context, "TOKENS", "gpt: tokens of a sample").at_least(1).only_with("model", {"gpt"});
  table.add("dropout", options.dropout, "RATE", "share of activations that a training step drops")
      .at_least(0)
      .below(1)
      .only_with("model", {"lstm", "gpt"});
  table.add("tied", options.tied, "WHEN", "the output layer shares the embedding's table; auto: gpt yes, lstm no")
      .one_of({"auto", "yes", "no"})
      .only_with("model", {"lstm", "gpt"});
  table.add("sync-batch-norm", options.sync_batch_norm, "batch statistics over all ranks, not over each rank's part")
      .only_with("model", {"resnet"});
  table.add("activation", options.activation, "NAME", "after each hidden layer")
      .one_of({"relu", "tanh", "sigmoid"})
      .only_with("model", {"mlp"});
  table
      .add("weight-init", options.weight_init, "SCHEME",
           "initial weights: auto (as the network wants them), zeros, constant(V), uniform(HALF_WIDTH), "
           "normal(DEVIATION), truncated_normal(DEVIATION), "
           "xavier_uniform, xavier_normal, he_uniform, he_normal, lecun_normal, fan_in_uniform")
      .check(check_initializer);
  table.add("bias-init", options.bias_init, "SCHEME", "initial biases, likewise").check(check_initializer);
  table.add("loss", options.loss, "NAME", "auto: cross-entropy for class labels, squared error for numbers to predict")
      .one_of({"auto", "softmax-cross-entropy", "mean-squared-error"});
  table
      .add("label-smoothing", options.label_smoothing, "S",
           "cross-entropy: the target gives this share of its weight to all classes alike; validation does not")
      .at_least(0)
      .below(1);
}

void add_optimizer_options(OptionTable& table, TrainOptions& options) {
  table.group("Optimiser");
  table.add("optimizer", options.optimizer, "NAME", "the update rule")
      .one_of({"sgd", "momentum", "nesterov", "adam", "adamw", "lars", "lamb"});
  table.add("momentum", options.momentum, "MU", "of momentum, nesterov and lars")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"momentum", "nesterov", "lars"});
  table.add("trust", options.trust, "C", "lars: the step of a layer is at most this share of its weights' norm")
      .above(0)
      .only_with("optimizer", {"lars"});
  table.add("beta1", options.beta1, "B", "decay of the first moment")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table.add("beta2", options.beta2, "B", "decay of the second moment")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table.add("epsilon", options.epsilon, "E", "added to the root of the second moment")
      .above(0)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table
      .add("l2", options.l2, "C",
           "L2 in the loss: adds C/2 |w|^2 to the loss and C w to the gradient (weights, not biases)")
      .at_least(0);
  table
      .add("weight-decay", options.weight_decay, "C",
           "decoupled decay: w -= learning rate * C * w (weights, not biases)")
      .at_least(0);
  table.add("clip-norm", options.clip_norm, "NORM", "scale the gradient down to this global norm; 0: off").at_least(0);
  table.add("clip-value", options.clip_value, "V", "clamp each gradient element to [-V, V]; 0: off")
      .at_least(0)
      .contradicts("clip-norm");
  table
      .add("average-decay", options.average_decay, "D",
           "keep a moving average of the weights with decay min(D, (1 + step) / (10 + step)); 0: off")
      .at_least(0)
      .below(1);
}

void add_learning_rate_options(OptionTable& table, TrainOptions& options) {
  table.group("Learning rate");
  table.add("learning-rate", options.learning_rate, "RATE", "the rate after warm-up").above(0);
  table.add("schedule", options.schedule, "NAME", "how it changes")
      .one_of({"constant", "exponential", "step", "cosine", "polynomial"});
  table.add("decay-rate", options.decay_rate, "FACTOR", "exponential: per --decay-steps; step: at each boundary")
      .above(0)
      .only_with("schedule", {"exponential", "step"});
  table.add("decay-steps", options.decay_steps, "STEPS", "exponential: steps per factor")
      .at_least(1)
      .only_with("schedule", {"exponential"});
  table.add("staircase", options.staircase, "exponential: change only every --decay-steps, not smoothly")
      .only_with("schedule", {"exponential"});
  table.add("boundaries", options.boundaries, "STEPS", "step: where the rate changes, comma-separated, ascending")
      .at_least(0)
      .check(check_boundaries)
      .only_with("schedule", {"step"});
  table.add("final-learning-rate", options.final_learning_rate, "RATE", "cosine, polynomial: the rate at the end")
      .at_least(0)
      .only_with("schedule", {"cosine", "polynomial"});
  table.add("power", options.power, "P", "polynomial: the exponent").above(0).only_with("schedule", {"polynomial"});
  table.add("warmup-steps", options.warmup_steps, "STEPS", "rise linearly to the rate over this many steps")
      .at_least(0);
  table
      .add(
          "reference-batch", options.reference_batch, "SAMPLES",
          "the linear scaling rule: --learning-rate is meant for this global batch and is multiplied by global batch / "
          "SAMPLES; 0: off")
      .at_least(0);
}

void add_amount_options(OptionTable& table, TrainOptions& options) {
  table.group("Amount of work");
  table.add("epochs", options.epochs, "N", "passes over the data; may be fractional").above(0).contradicts("steps");
  table.add("steps", options.steps, "N", "updates; instead of --epochs; 0: off").at_least(0);
}

void add_batch_options(OptionTable& table, TrainOptions& options) {
  table.group("Amount of work");
  table.add("batch", options.batch, "SAMPLES", "per rank and micro-step").at_least(1).contradicts("global-batch");
  table
      .add("global-batch", options.global_batch, "SAMPLES",
           "per step, over all ranks and micro-steps; instead of --batch; 0: off")
      .at_least(0);
  table.add("accumulate", options.accumulate, "N", "micro-steps per step: gradients are summed over N batches")
      .at_least(1)
      .at_most(1000000);
  table.add("seed", options.seed, "N", "of initial weights and sample order; the same at any number of ranks");
}

void add_validation_options(OptionTable& table, TrainOptions& options) {
  table.group("Validation");
  table.add("evaluate-every", options.evaluate_every, "STEPS", "0: once per epoch; -1: only at the end").at_least(-1);
  table.add("evaluation-batch", options.evaluation_batch, "SAMPLES", "samples evaluated at once").at_least(1);
  table.add("evaluate-average", options.evaluate_average, "validate with the averaged weights").needs("average-decay");
  table.add(
      "target-metric", options.target_metric, "VALUE",
      "stop when validation reaches it: accuracy (0 to 1) at least, mean absolute error or perplexity at most VALUE");
}

void add_run_options(OptionTable& table, TrainOptions& options) {
  table.group("Run folder");
  table.add("run", options.run, "FOLDER",
            "configuration, log, metrics and checkpoints go there; default: runs/MODEL-DATE-TIME");
  table
      .add("resume", options.resume, "FILE",
           "go on from the newest checkpoint in --run that verifies, or from FILE; starts anew where there is none yet")
      .alone_means("auto");
  table.add("force", options.force, "start over in a folder that holds a run already").contradicts("resume");
  table.add("checkpoint-every", options.checkpoint_every, "STEPS", "0: once per epoch; -1: only at the end")
      .at_least(-1);
  table.add("keep", options.keep, "N", "newest checkpoints to keep").at_least(1);
  table
      .add("time-limit", options.time_limit, "TIME",
           "of this launch, in seconds or as [D-]HH:MM[:SS]: stop early enough for a checkpoint, with exit code 75; "
           "auto: the end of the Slurm job; none")
      .check(check_time_limit);
}

void add_report_options(OptionTable& table, TrainOptions& options) {
  table.group("Reports");
  table.add("report-every", options.report_every, "STEPS", "0: about every second").at_least(0);
  table.add("tensorboard", options.tensorboard, "write TensorBoard event files");
  table
      .add("histograms-every", options.histograms_every, "STEPS",
           "weight and gradient histograms for TensorBoard; 0: never")
      .at_least(0)
      .only_with("tensorboard", {"yes"});
  table.add("progress", options.progress, "WHEN", "the progress bar; auto: on a terminal")
      .one_of({"auto", "on", "off"});
}

void add_execution_options(OptionTable& table, ExecutionOptions& options) {
  table.group("Execution");
  table
      .add("device", options.device, "WHERE",
           "auto: each rank on a GPU of its own where every rank has one, on the CPU where none has; gpu: or fail; cpu")
      .one_of({"auto", "cpu", "gpu"});
  table
      .add("precision", options.precision, "NAME",
           "of products on GPUs: fp32, tf32, bf16 (activations, too); auto: bf16 on GPUs that have it, else fp32. "
           "Weights, "
           "gradients and statistics stay fp32, as all is on CPUs")
      .one_of({"auto", "fp32", "tf32", "bf16"});
  table.add("threads", options.threads, "N", "threads per rank on CPUs")
      .at_least(1)
      .at_most(1024)
      .only_with("device", {"auto", "cpu"});
  table
      .add("transport", options.transport, "NAME",
           "how ranks exchange numbers of CPUs; auto: shared memory where all ranks share a host, two-level (shared "
           "memory within hosts, rings between them) where some do, else the ring")
      .one_of({"auto", "shared-memory", "two-level", "ring"});
  table.add("deadline", options.deadline, "SECONDS", "a rank that is silent for longer is called dead and ends the job")
      .above(0);
  table.add("share-gpu", options.share_gpu, "let several ranks use one GPU: slow, for tests")
      .only_with("device", {"auto", "gpu"});
}

void add_step_options(OptionTable& table, TrainOptions& options) {
  ExecutionOptions& execution = options.execution;
  table.add("bucket-size", options.bucket_size, "ELEMENTS", "gradients reduced at once; 0: by a fixed rule")
      .at_least(0);
  table
      .add("shard-optimizer", options.shard_optimizer,
           "each rank keeps 1/ranks of the optimiser's state, updates its share of the weights and passes them on; the "
           "same steps, checkpoints as without")
      .only_with("optimizer", {"sgd", "momentum", "nesterov", "adam", "adamw"});
  table
      .add("wire", execution.wire, "NAME",
           "how gradients travel between GPUs and between hosts: fp32; bf16 (half the bytes, rounded at every hop); "
           "bf16-feedback (CPUs: what rounding takes away is added to the next step)")
      .one_of({"fp32", "bf16", "bf16-feedback"});
  table.add("ring", execution.ring, "GPUs: sum gradients by NCCL's ring and no other algorithm")
      .only_with("device", {"auto", "gpu"});
  table.add("graph", execution.graphs, "GPUs: record a step once (CUDA graphs) and replay it; the numbers are the same")
      .only_with("device", {"auto", "gpu"});
  table
      .add("tune", execution.tune,
           "GPUs: choose the algorithms of matrix products by timing a few in the first step; two runs may then differ "
           "in the last bits")
      .only_with("device", {"auto", "gpu"});
}

TrainOptions parse_train(const std::vector<std::string>& arguments) {
  TrainOptions options;
  OptionTable table = train_table(options);
  read_train_options(table, options, arguments, kUsage, kExamples);
  table.require(
      "data", options.resume == "auto" && !options.run.empty()
                  ? fmt::format("{} has no config.ini to take it from; name the data of the run", options.run.string())
                  : "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

TrainOptions train_options_from_ini(const std::string& ini) {
  TrainOptions options;
  OptionTable table = train_table(options);
  apply_ini(ini, "stored configuration", table);
  apply_network_defaults(options, table);
  table.check_relations();
  options.explicitly_set = table.given();
  return options;
}

bool TrainOptions::was_set(const std::string& name) const {
  return std::find(explicitly_set.begin(), explicitly_set.end(), name) != explicitly_set.end();
}

std::string TrainOptions::to_ini() const {
  TrainOptions options;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(options);
  options = *this;
  return format_ini(table);
}

}  // namespace lockstep::app
