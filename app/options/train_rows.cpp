/// \file
/// The rows of the training options, except those of networks.
#include "app/options/train_rows.hpp"

#include <charconv>

#include <fmt/format.h>

#include "app/options/all_reduce_option.hpp"
#include "app/options/image_options.hpp"
#include "app/options/train_values.hpp"
#include "comm/summation_tree.hpp"
#include "io/shards/shard_file.hpp"

namespace lockstep::app {

std::string to_text(const Normalization& value) {
  if (value.kind != Normalization::Kind::affine) return word_of(value.kind);
  return fmt::format("affine({:.9g},{:.9g})", value.affine.scale, value.affine.shift);
}

void require_own_files(const std::filesystem::path& csv, const std::filesystem::path& json,
                       const std::filesystem::path& svg) {
  struct Named {
    const char* option;
    const std::filesystem::path& file;
  };
  const Named files[] = {{"csv", csv}, {"json", json}, {"svg", svg}};
  for (const Named& one : files) {
    for (const Named& other : files) {
      if (&one < &other && !one.file.empty() && one.file == other.file) {
        throw UsageError(fmt::format("--{} and --{} are both {}: give them files of their own", one.option,
                                     other.option, one.file.string()));
      }
    }
  }
}

std::string reject_empty(const std::string& text) { return text.empty() ? "is not accepted" : ""; }

void add_input_option(OptionTable& table, Normalization& normalize) {
  table.add_parsed("normalize", normalize, "HOW",
                   "conversion of stored numbers to the network's input, as in train; default: as in training",
                   parse_normalization, to_text);
}

void add_unknown_categories_option(OptionTable& table, io::UnknownCategories& unknown) {
  using enum io::UnknownCategories;
  static const std::vector<Choice<io::UnknownCategories>> choices{{"error", error}, {"none", none}};
  table.add_choice("unknown-categories", unknown, "HOW",
                   "categories in columns of text that the network was not trained on: error, or none (the sample has "
                   "none of the known categories)",
                   choices);
}

namespace {

/// Adds --validation: a path, or a share of the training data.
void add_validation_data_option(OptionTable& table, DataOptions& options) {
  const auto parse = [&options](const Option&, const std::string& text) -> std::string {
    double share = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, share);
    if (error == std::errc() && end == last) {
      if (!(share > 0 && share < 1)) return "is neither a path nor a share between 0 and 1";
      options.validation.clear();
      options.validation_share = share;
    } else {
      options.validation = text;
      options.validation_share = 0;
    }
    return "";
  };
  const auto text = [&options] {
    return options.validation_share > 0 ? fmt::format("{}", options.validation_share) : options.validation.string();
  };
  table.add_free(
      "validation", Option::Shape::value, "PATH",
      "validation data, in the same forms as --data; or a fraction of the training samples, such as 0.2: always the "
      "same samples, which are not trained on; default: validation/ or test/ inside --data, if there is a train/",
      parse, text);
}

}  // namespace

void add_layout_option(OptionTable& table, io::Layouts& layout) {
  table.add_parsed("layout", layout, "ORDER",
                   "order of the dimensions of images: channels-last (height, width, channels) or channels-first; or "
                   "letters, for one data set or for each: nchw, image=nchw,y=nhw; auto: channels-first if a "
                   "sample is [1, H, W], [3, H, W] or [4, H, W], else channels-last",
                   parse_layout, layout_text);
}

void add_data_names(OptionTable& table, std::string& x, std::string& y) {
  table
      .add("x", x, "NAME",
           "HDF5 dataset of the samples in --data, for files from other programs; several inputs: NAME,NAME, also in "
           "shards")
      .check(reject_empty);
  table.add("y", y, "NAME", "HDF5 dataset of their labels or targets; several datasets of numbers: NAME,NAME")
      .check(reject_empty);
}

void add_verify_option(OptionTable& table, VerifyData& verify) {
  table.add_choice(
      "verify", verify, "WHEN",
      "recompute the checksums of the shards before reading them; auto: if they hold at most 4 GiB in total");
}

void add_allow_fill(OptionTable& table, bool& allow_fill) {
  table.add("allow-fill", allow_fill,
            "accept numbers that were never written into HDF5 files from other programs, with their fill value as "
            "data; default: an error");
}

namespace {

std::string parse_label(const std::string& text, std::optional<std::int64_t>& label) {
  label.reset();
  if (text.empty()) return "";  // written by to_ini() if there is none
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return "is not a whole number";
  label = number;
  return "";
}

std::string label_text(const std::optional<std::int64_t>& label) { return label ? fmt::format("{}", *label) : ""; }

}  // namespace

void add_ignore_label(OptionTable& table, std::optional<std::int64_t>& label) {
  table.add_parsed("ignore-label", label, "N",
                   "mask label that belongs to no class: positions with this label count in no loss and no metric",
                   parse_label, label_text);
}

void add_data_options(OptionTable& table, DataOptions& options) {
  table.group("Data");
  table.add("data", options.path, "PATH",
            "training data: a shard folder made by `lockstep pack`, a folder of HDF5 files, one HDF5 file, or a folder "
            "that contains train/ and maybe validation/ or test/");
  add_validation_data_option(table, options);
  table
      .add("x", options.x, "NAME",
           "HDF5 dataset of the samples, for files from other programs; several inputs: NAME,NAME, also in shards")
      .check(reject_empty);
  table.add(
      "y", options.y, "NAME",
      "HDF5 dataset of the labels or targets; several datasets of numbers: NAME,NAME; \"\": none (only with --window)");
  add_ignore_label(table, options.ignore_label);
  add_allow_fill(table, options.allow_fill);
  add_layout_option(table, options.layout);
  table
      .add_parsed(
          "normalize", options.normalize, "HOW",
          "conversion of stored numbers to inputs: none, range (the value range becomes 0 to 1), standard (all "
          "numbers together to mean 0, standard deviation 1), per-feature (the same for each column of a table "
          "or channel of other samples), per-image (for each image), affine(SCALE,SHIFT); auto: range for bytes, "
          "per-feature for floats whose spread requires it, else none",
          parse_normalization, to_text)
      .left_open_by("auto");
  table
      .add_choice(
          "normalize-targets", options.targets, "HOW",
          "scaling of numbers to predict: standard (each target to mean 0, standard deviation 1) or none; auto: "
          "standard if their spread requires it. Errors and predictions are always in the units of the data")
      .left_open_by("auto");
  add_unknown_categories_option(table, options.unknown_categories);
  table.add_parsed(
      "augment", options.augment, "HOW",
      "random changes of training images and volumes, comma-separated: pad=N, crop=N, crop=HxW or crop=DxHxW, "
      "area=SHARE (a random rectangle of at least this share of an image, scaled to the crop), flip (left and right) "
      "or flip=dhw (any of depth, height, width), symmetries (all flips and rotations that keep the shape), "
      "brightness=V, contrast=LOW:HIGH; or none. Validation uses the central crop",
      parse_augment, to_text);
  add_verify_option(table, options.verify);
  table.add_choice(
      "sampling", options.sampling, "HOW",
      "training samples of an epoch: uniform (each sample once) or balanced (the same number from each class, in an "
      "epoch of the same size: samples of rare classes repeat, samples of frequent classes are not in every epoch)");
  table.add("shuffle", options.shuffle, "visit the samples in a new order in each epoch");
  table
      .add("window", options.window, "STEPS",
           "forecast series of numbers (rows in order of time, or samples of steps x numbers): each sample is a window "
           "of this many steps, and the network predicts the steps after it; --validation SHARE then takes the end of "
           "each series; 0: off")
      .at_least(0);
  table.add("horizon", options.horizon, "STEPS", "steps to forecast after each window (--window)").at_least(1);
  table.add("shift-windows", options.shift_windows,
            "text: start the windows at other tokens in each epoch, drawn at random");
}

namespace {

std::string parse_image(const std::string& text, std::optional<model::ImageShape>& value) {
  if (text.empty()) return value.reset(), "";
  return refusal_of([&] { value = parse_image_shape(text); });
}

std::string image_text(const std::optional<model::ImageShape>& value) { return value ? app::to_text(*value) : ""; }

}  // namespace

Option& add_image_option(OptionTable& table, std::optional<model::ImageShape>& image, std::string help) {
  return table.add_parsed("image", image, "HxWxC", std::move(help), parse_image, image_text);
}

void add_loss_options(OptionTable& table, LossOptions& options) {
  table
      .add_choice("loss", options.kind, "NAME",
                  "training loss; auto: softmax cross-entropy for classes (one per sample), binary cross-entropy for "
                  "rows of 0 and 1 (any number of labels per sample), squared error for other numbers to predict. For "
                  "such numbers, mean-absolute-error and huber are robust to outliers; huber is half the squared error "
                  "up to 1 (one standard deviation of standardised targets) and linear beyond. soft-cross-entropy is "
                  "for targets that give each class a probability; dice is for masks: 1 - the soft Dice coefficient, "
                  "averaged over the classes of a sample")
      .left_open_by("auto");
  table
      .add("label-smoothing", options.label_smoothing, "S",
           "cross-entropy: spread this fraction of each training target evenly over all classes (labels: move it "
           "towards 1/2); not in validation")
      .at_least(0)
      .below(1);
  table
      .add_parsed(
          "class-weight", options.class_weights, "balanced|LIST",
          "factors for the losses of training samples by class: balanced (samples / (classes * samples of the class), "
          "so that rare classes count as much as frequent ones) or one number for each class, in class order. They are "
          "scaled to a mean of 1 over the training data; with masks, each step's loss is divided by the sum of its "
          "positions' factors. Validation counts all samples equally. Cannot be combined with --sampling balanced",
          parse_class_weights, to_text)
      .contradicts("sampling");
  table
      .add("sample-weight", options.sample_weight, "NAME",
           "dataset in the training files with a factor for the loss of each sample, 0 or more; scaled like "
           "--class-weight, and multiplied by it if both are given")
      .contradicts("sampling");
}

void add_optimizer_options(OptionTable& table, model::OptimizerOptions& options) {
  table.group("Optimiser");
  table.add_choice("optimizer", options.kind, "NAME", "update rule");
  table.add("momentum", options.momentum, "MU", "momentum coefficient of momentum, nesterov and lars")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"momentum", "nesterov", "lars"});
  table
      .add("trust", options.trust, "C",
           "lars: trust coefficient: a parameter's gradient is scaled to at most C times the norm of its weights")
      .above(0)
      .only_with("optimizer", {"lars"});
  table.add("beta1", options.beta1, "B", "adam, adamw, lamb: decay rate of the first moment")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table.add("beta2", options.beta2, "B", "adam, adamw, lamb: decay rate of the second moment")
      .at_least(0)
      .below(1)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table
      .add("epsilon", options.epsilon, "E",
           "adam, adamw, lamb: number added to the square root of the second moment, after the "
           "correction of its bias (as PyTorch does; TensorFlow 1 adds it before)")
      .above(0)
      .only_with("optimizer", {"adam", "adamw", "lamb"});
  table
      .add("l2", options.l2, "C",
           "L2 regularisation: add C/2 |w|^2 to the loss and C w to the gradient (weights, not biases)")
      .at_least(0);
  table
      .add("weight-decay", options.weight_decay, "C",
           "decoupled weight decay: w -= learning rate * C * w (weights, not biases); lars and lamb include it in "
           "their update")
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

void add_learning_rate_options(OptionTable& table, model::ScheduleOptions& options, WorkOptions& work) {
  table.group("Learning rate");
  table
      .add("learning-rate", options.base, "RATE",
           "learning rate after warm-up; default: 0.001 with adam, adamw and lamb, else 0.1")
      .above(0);
  table.add_choice("schedule", options.kind, "NAME", "change of the learning rate during training");
  table
      .add("decay-rate", options.decay_rate, "FACTOR",
           "exponential: factor per --decay-steps; step: factor at each boundary")
      .above(0)
      .only_with("schedule", {"exponential", "step"});
  table.add("decay-steps", options.decay_steps, "STEPS", "exponential: steps per --decay-rate")
      .at_least(1)
      .only_with("schedule", {"exponential"});
  table.add("staircase", options.staircase, "exponential: change the rate only once every --decay-steps, not smoothly")
      .only_with("schedule", {"exponential"});
  table
      .add("boundaries", options.boundaries, "STEPS",
           "step: steps at which the rate changes, comma-separated, ascending")
      .at_least(0)
      .check(check_boundaries)
      .only_with("schedule", {"step"});
  table.add("final-learning-rate", options.final_rate, "RATE", "cosine, polynomial: learning rate at the end")
      .at_least(0)
      .only_with("schedule", {"cosine", "polynomial"});
  table.add("power", options.power, "P", "polynomial: exponent").above(0).only_with("schedule", {"polynomial"});
  table.add("warmup-steps", options.warmup_steps, "STEPS", "first steps, in which the learning rate rises linearly")
      .at_least(0);
  table
      .add("reference-batch", work.reference_batch, "SAMPLES",
           "global batch that --learning-rate is meant for; the rate is multiplied by global batch / SAMPLES (linear "
           "scaling rule); 0: off")
      .at_least(0);
}

void add_amount_options(OptionTable& table, WorkOptions& options) {
  table.group("Amount of work");
  const auto parse = [&options](const Option& row, const std::string& text) {
    return text == "auto" ? (options.epochs = 0, std::string()) : row.read(text, options.epochs);
  };
  table
      .add_free("epochs", Option::Shape::value, "N",
                "passes over the data; may be fractional; auto: one, or with small data as many as make 1000 steps, at "
                "most 100; for text always one",
                parse, [&options] { return options.epochs > 0 ? fmt::format("{}", options.epochs) : "auto"; })
      .above(0)
      .contradicts("steps")
      .left_open_by("auto");
  table.add("steps", options.steps, "N", "number of steps (updates), instead of --epochs; 0: off")
      .at_least(0)
      .left_open_by("0");
}

void add_batch_options(OptionTable& table, WorkOptions& options) {
  table.group("Amount of work");
  table
      .add("batch", options.batch, "SAMPLES",
           "samples per rank and micro-step; unless given, a step has at most a sixteenth of the training samples, but "
           "at least 16")
      .at_least(1)
      .contradicts("global-batch");
  table
      .add("global-batch", options.global_batch, "SAMPLES",
           "samples per step, over all ranks and micro-steps; instead of --batch; 0: off")
      .at_least(0)
      .left_open_by("0");
  add_micro_step_options(table, options);
}

void add_micro_step_options(OptionTable& table, WorkOptions& options) {
  table.add("accumulate", options.accumulate, "N", "micro-steps per step, whose gradients are summed")
      .at_least(1)
      .at_most(1000000);
  table.add("reproducible", options.reproducible,
            "compute the same bits at any number of ranks: each step of --global-batch samples is split into the same "
            "parts (virtual ranks), which are summed in the same order; needs CPUs of one kind or GPUs of one kind");
  table
      .add("virtual-ranks", options.virtual_ranks, "N",
           "parts of a step with --reproducible, at least as many as ranks; 0: 24, halved while that is more than "
           "--global-batch")
      .at_least(0)
      .left_open_by("0")
      .at_most(comm::SummationTree::kMaxTerms)
      .needs("reproducible");
  table.add("seed", options.seed, "N",
            "random seed of the initial weights and the sample order, which are the same at any number of ranks");
}

void add_agree_options(OptionTable& table, AgreeOptions& options) {
  table.group("Agreement between ranks");
  table.add_parsed(
      "agree", static_cast<AgreeMode&>(options), "MODE",
      "how ranks combine their work. all: every step sums the gradients of all ranks. local=STEPS: islands of ranks "
      "make STEPS steps on their own (a round), then an outer optimiser merges their weights; 1/STEPS of the bytes "
      "between islands, for slow links; checkpoints, validations and stops wait for the end of a round. quorum=RANKS: "
      "the first RANKS gradients of a step make the update, later ones are dropped. async: servers keep the parameters "
      "and apply each gradient as soon as it arrives",
      parse_agree, agree_text);
  table
      .add(
          "islands", options.islands, "N",
          "groups of neighbouring ranks, as equal as possible, that sum their gradients in every step; 0: one per host")
      .at_least(0)
      .left_open_by("0")
      .needs("agree");
  table
      .add("agree-after", options.after, "STEP",
           "last of the first steps in which all ranks sum their gradients; rounds of local steps begin after it "
           "(post-local SGD), because islands are worst at the start of training")
      .at_least(0)
      .needs("agree");
  table
      .add_choice("outer-optimizer", options.outer.kind, "NAME",
                  "update from the islands' mean change of the weights: average (takes the mean: local SGD), momentum, "
                  "slowmo (momentum in units of the learning rate), nesterov (DiLoCo)")
      .needs("agree");
  table.add("outer-rate", options.outer.rate, "RATE", "learning rate of the outer optimiser")
      .above(0)
      .needs("agree")
      .only_with("outer-optimizer", {"momentum", "slowmo", "nesterov"});
  table.add("outer-momentum", options.outer.momentum, "M", "momentum of the outer optimiser")
      .at_least(0)
      .below(1)
      .needs("agree")
      .only_with("outer-optimizer", {"momentum", "slowmo", "nesterov"});
  table
      .add("fragments", options.fragments, "F",
           "equal parts of the weights, on which islands agree in turn within a round")
      .at_least(1)
      .needs("agree");
  table
      .add("delay", options.delay, "STEPS",
           "steps that islands continue to make while the sum of a fragment is in transit; fewer than a round has per "
           "fragment")
      .at_least(0)
      .needs("agree");
  table
      .add_parsed(
          "servers", options.servers, "N|shared",
          "ranks that keep the parameters, in equal parts: N: the last N ranks, which do nothing else; shared: every "
          "rank, besides its training; 0: the last rank with async, rank 0 besides its training with a quorum",
          parse_servers, servers_text)
      .needs("agree");
  table
      .add("staleness", options.staleness, "STEPS",
           "async: steps that the fastest rank may be ahead of the slowest; 0: every update is the sum over all ranks; "
           "-1: no limit")
      .at_least(-1)
      .only_with("agree", {"async"});
  table
      .add_choice("stale-rate", options.stale_rate, "HOW",
                  "async: treatment of gradients whose weights have changed since: keep (apply them unchanged) or "
                  "scale (divide the learning rate by the number of updates in between)")
      .only_with("agree", {"async"});
  table
      .add("replay", options.replay, "FILE",
           "repeat an async or quorum run bit for bit, with its order of gradients; FILE is arrivals-N in its run "
           "folder")
      .needs("agree");
}

void add_validation_options(OptionTable& table, ValidationOptions& options) {
  table.group("Validation");
  table
      .add("evaluate-every", options.every, "STEPS",
           "steps between validations; 0: once per epoch; -1: only at the end")
      .at_least(-1);
  table.add("evaluation-batch", options.batch, "SAMPLES", "samples evaluated at once").at_least(1);
  table.add("evaluate-average", options.average, "validate with the averaged weights (--average-decay)")
      .needs("average-decay");
  table.add_choice(
      "best-by", options.best_by, "METRIC",
      "validation metric for the best checkpoint, --patience and --target-metric; auto: accuracy, for masks mean IoU, "
      "for numbers mean absolute error, for text perplexity. For data with rare classes or labels: balanced-accuracy "
      "(the mean of the classes' recalls), f1-macro and roc-auc (one against the rest; the mean over classes or "
      "labels). With classes beside numbers to predict, accuracy is that of the classes");
  table.add("patience", options.patience, "N", "stop after N consecutive validations without improvement; 0: never")
      .at_least(0);
  table
      .add("min-delta", options.min_delta, "VALUE",
           "count a validation as an improvement if it is better by more than VALUE, in the units of the metric")
      .at_least(0)
      .needs("patience");
  table.add("target-metric", options.target_metric, "VALUE",
            "stop when the metric of --best-by reaches VALUE: at least VALUE for accuracy (0 to 1), mean IoU, F1 and "
            "ROC area, at most VALUE for loss, mean absolute error and perplexity");
}

void add_start_options(OptionTable& table, StartOptions& options) {
  table.group("Initial weights");
  table.add("initialize-from", options.from, "PATH",
            "take the initial weights, by tensor name, from a run folder (its best checkpoint), a checkpoint file or "
            "FILE.safetensors (also GPT-2's); the averaged weights if the source validated with --evaluate-average. "
            "Other tensors are initialised as usual. A resumed run keeps its own weights");
  table
      .add_parsed("reinitialize", options.reinitialize, "PATTERNS",
                  "tensors to initialise as usual nevertheless, comma-separated, * matches anything: dense_3/* for a "
                  "new last layer",
                  parse_patterns, to_text)
      .needs("initialize-from");
}

void add_tuning_options(OptionTable& table, TuningOptions& options) {
  table.group("Trained parameters");
  table.add_parsed(
      "freeze", options.freeze, "PATTERNS",
      "tensors that keep their initial values, comma-separated, * matches anything: embedding/*,block_*. They need no "
      "gradients, optimiser state or communication; frozen batch normalisation keeps its running statistics",
      parse_patterns, to_text);
  table.add_parsed("learning-rate-scale", options.rate_scales, "PATTERN=FACTOR",
                   "multiply the learning rate of matching tensors by FACTOR; comma-separated, * matches anything: "
                   "head/*=10,block_*=0.1; if several match, the last counts",
                   parse_rate_scales, to_text);
}

void add_writers_option(OptionTable& table, RunOptions& options) {
  table
      .add("checkpoint-writers", options.checkpoint_writers, "N",
           "ranks that write a checkpoint together, each a part, to a folder that all hosts see; 0: rank 0 alone, or "
           "all ranks with --shard-optimizer")
      .at_least(0);
}

void add_run_options(OptionTable& table, RunOptions& options) {
  table.group("Run folder");
  table.add("run", options.folder, "FOLDER",
            "folder for configuration, log, metrics and checkpoints; default: runs/MODEL-DATE-TIME");
  table
      .add_parsed("resume", options.resume, "FILE",
                  "continue from the newest checkpoint in --run that verifies, or from FILE; start a new run if there "
                  "is no checkpoint yet",
                  parse_resume, to_text)
      .alone_means("auto");
  table
      .add("new-optimizer-state", options.new_optimizer_state,
           "with --resume FILE: take the weights and the position in the data from FILE, and start the optimiser, "
           "which may be another one, from scratch")
      .needs("resume");
  table
      .add("roll-back", options.roll_back, "N",
           "return to the last good checkpoint when the loss is not finite or leaps (its mean over 20 steps is more "
           "than twice the best so far), at most N times; 0: never, and a loss that is not finite ends the run")
      .at_least(0);
  table
      .add("roll-back-factor", options.roll_back_factor, "FACTOR",
           "multiply the learning rate by FACTOR at each roll-back")
      .above(0)
      .at_most(1)
      .needs("roll-back");
  table.add("force", options.force, "start over in a folder that already holds a run").contradicts("resume");
  table.add_parsed("checkpoint-every", options.checkpoint_every, "STEPS",
                   "steps between checkpoints, or a time: 90s, 10m, 2h; 0: once per epoch; -1: only at the end. "
                   "SIGUSR2, or a file named checkpoint-now in the run folder, requests one at once",
                   parse_every, to_text);
  table.add("keep", options.keep, "N", "number of newest checkpoints to keep").at_least(1);
  table
      .add("keep-best", options.keep_best, "N",
           "number of checkpoints with the best validation metrics to keep as well; checkpoints/best points to the "
           "best. Only checkpoints of validated steps count: make the steps of --evaluate-every and --checkpoint-every "
           "coincide. If --checkpoint-every is a time, each validation that is the best so far writes a checkpoint")
      .at_least(0);
  add_writers_option(table, options);
  table.add_parsed("time-limit", options.time_limit, "TIME",
                   "time limit of this launch, in seconds or as [D-]HH:MM[:SS]; it stops early enough to write a "
                   "checkpoint, with exit code 75; auto: the end of the Slurm job; none: no limit",
                   parse_limit, to_text);
  table
      .add("stop-at", options.stop_at, "STEP",
           "stop this launch after STEP, with a validation, a checkpoint and exit code 75; --resume continues; below "
           "1: fraction of the run's steps; 0: at the end")
      .at_least(0);
}

CheckpointRows::CheckpointRows(OptionTable& table) : table_(table) {
  table.add("run", run_, "PATH", "run folder, checkpoints folder or checkpoint file; the name --run may be omitted")
      .positional();
  table
      .add("checkpoint", checkpoint_, "WHICH",
           "checkpoint of the run: best (by validation metric; the newest if none was validated), latest, or FILE (its "
           "name in the run, or its path)")
      .check(reject_empty);
}

CheckpointChoice CheckpointRows::chosen() const {
  using Which = CheckpointChoice::Which;
  const std::filesystem::path file = checkpoint_;
  if (checkpoint_ != "best" && checkpoint_ != "latest") {
    const bool of_run = !run_.empty() && !file.has_parent_path();
    return of_run ? CheckpointChoice{.path = run_, .name = checkpoint_} : CheckpointChoice{.path = file};
  }
  table_.require("run", "name a run folder or a checkpoint file");
  return {.path = run_, .which = checkpoint_ == "best" ? Which::best : Which::latest};
}

void add_progress_option(OptionTable& table, std::optional<bool>& progress) {
  static const std::vector<Choice<std::optional<bool>>> words{{"auto", std::nullopt}, {"on", true}, {"off", false}};
  table.add_choice("progress", progress, "WHEN", "show the progress bar; auto: on a terminal", words);
}

void add_report_options(OptionTable& table, ReportOptions& options) {
  table.group("Reports");
  table.add("report-every", options.every, "STEPS", "steps between reports; 0: about every second").at_least(0);
  table.add("tensorboard", options.tensorboard, "write TensorBoard event files");
  table
      .add("histograms-every", options.histograms_every, "STEPS",
           "steps between histograms of weights and gradients for TensorBoard; 0: never")
      .at_least(0)
      .only_with("tensorboard", {"yes"});
  add_progress_option(table, options.progress);
}

void add_nvls_option(OptionTable& table, ExecutionOptions& options) {
  table
      .add("nvls", options.nvls,
           "GPUs: allow NCCL to sum in the switches between GPUs (NVLS); two runs may then differ in the last bits")
      .only_with("device", {"auto", "gpu"})
      .contradicts("ring");
}

void add_deadline_options(OptionTable& table, ExecutionOptions& options) {
  table
      .add("deadline", options.deadline, "SECONDS",
           "time without a sign of life after which a rank counts as dead and the job ends")
      .above(0);
  table
      .add("io-deadline", options.io_deadline, "SECONDS",
           "time after which a read or write that does not return (data, checkpoints, logs) ends the job; the other "
           "ranks wait until then")
      .above(0);
}

void add_execution_options(OptionTable& table, ExecutionOptions& options) {
  table.group("Execution");
  table.add_choice(
      "device", options.device, "WHERE",
      "device to compute on: cpu; gpu, else an error; auto: gpu if every rank has a GPU of its own, cpu if none has");
  table.add_choice(
      "precision", options.precision, "NAME",
      "precision of matrix multiplications: fp32, tf32 (GPUs) or bf16 (on GPUs also of activations); auto: bf16 on "
      "GPUs that have it, else fp32. Sums, weights, gradients and statistics are always fp32");
  table
      .add_choice("bf16-unit", options.bf16_unit, "NAME",
                  "CPUs: instructions for bf16 multiplication; auto: the fastest, measured at the start; an error "
                  "unless faster than fp32. Emulations give the same bits in products but are slow: for tests")
      .only_with("precision", {"bf16"})
      .only_with("device", {"auto", "cpu"});
  table.add("threads", options.threads, "N", "CPUs: threads per rank")
      .at_least(1)
      .at_most(1024)
      .only_with("device", {"auto", "cpu"});
  table.add_choice("transport", options.transport, "NAME",
                   "CPUs: all-reduce between ranks: shared-memory, two-level (shared memory within hosts, rings "
                   "between them), ring, mpi (that of the MPI library); auto: shared-memory if all ranks share a host, "
                   "two-level if some do, else ring");
  add_deadline_options(table, options);
  table.add("share-gpu", options.share_gpu, "let several ranks share a GPU: slow, for tests")
      .only_with("device", {"auto", "gpu"});
}

void add_step_options(OptionTable& table, ExecutionOptions& options) {
  table
      .add("bucket-size", options.bucket_size, "ELEMENTS",
           "gradients to reduce together, as one bucket; 0: a fixed rule")
      .at_least(0);
  table
      .add("shard-optimizer", options.shard_optimizer,
           "keep 1/ranks of the optimiser state on each rank, which updates its part of the weights and sends it to "
           "all; steps and checkpoints are the same as without")
      .only_with("optimizer", {"sgd", "momentum", "nesterov", "adam", "adamw"});
  table.add_choice("wire", options.wire, "NAME",
                   "format of gradients between GPUs and between hosts: fp32; bf16 (half the bytes, rounded at every "
                   "hop); bf16-feedback (CPUs: rounding errors are added to the next step); int8-feedback (the same "
                   "with a quarter of the bytes)");
  add_all_reduce_option(table, options);
  table.add("ring", options.ring, "GPUs: let NCCL use only its ring algorithm to reduce gradients")
      .only_with("device", {"auto", "gpu"});
  add_nvls_option(table, options);
  table
      .add("cudnn-attention", options.cudnn_attention,
           "GPUs: compute bf16 attention with cuDNN on Hopper if it supports the shape, else with Lockstep's own "
           "kernels")
      .only_with("device", {"auto", "gpu"});
  table.add("graph", options.graphs, "GPUs: record a step once as a CUDA graph and replay it; the numbers are the same")
      .only_with("device", {"auto", "gpu"});
  table
      .add("tune", options.tune,
           "GPUs: prefer speed to repeatability: time some algorithms for matrix multiplications and convolutions in "
           "the first step, and add attention gradients in any order; two runs may then differ in the last bits")
      .only_with("device", {"auto", "gpu"});
}

void add_train_options(OptionTable& table, TrainOptions& options) {
  add_data_options(table, options.data);
  add_network_options(table, options.network);
  add_loss_options(table, options.loss);
  add_optimizer_options(table, options.optimizer);
  add_learning_rate_options(table, options.schedule, options.work);
  add_amount_options(table, options.work);
  add_batch_options(table, options.work);
  add_agree_options(table, options.agree);
  add_validation_options(table, options.validation);
  add_start_options(table, options.start);
  add_tuning_options(table, options.tuning);
  add_run_options(table, options.run);
  add_report_options(table, options.reports);
  add_execution_options(table, options.execution);
  add_step_options(table, options.execution);
  table.add("dry-run", options.dry_run, "print the plan (parameters, memory, work per step, buckets) and exit");
}

OptionTable train_table(TrainOptions& options) {
  OptionTable table("lockstep train");
  add_train_options(table, options);
  table.find("data")->positional();
  return table;
}

}  // namespace lockstep::app
