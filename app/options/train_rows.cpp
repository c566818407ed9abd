/// The options of training without those of networks.
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
  table.add_parsed(
      "normalize", normalize, "HOW",
      "how the numbers of this data become the network's input, as train takes it; default: as in training",
      parse_normalization, to_text);
}

void add_unknown_categories_option(OptionTable& table, io::UnknownCategories& unknown) {
  using enum io::UnknownCategories;
  static const std::vector<Choice<io::UnknownCategories>> choices{{"error", error}, {"none", none}};
  table.add_choice("unknown-categories", unknown, "HOW",
                   "of columns of texts: a category that the network was not trained on is an error, or none (the "
                   "sample has none of the categories)",
                   choices);
}

namespace {

/// A path, or a share of the training data.
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
  table.add_free("validation", Option::Shape::value, "PATH",
                 "what to validate on, in the same forms; or a share of the samples of --data, as 0.2: always the same "
                 "ones, which are not trained on; default: validation/ or test/ inside --data, where there is a train/",
                 parse, text);
}

}  // namespace

void add_layout_option(OptionTable& table, io::Layouts& layout) {
  table.add_parsed("layout", layout, "ORDER",
                   "of images: channels-last (height, width, channels) or channels-first; auto: the latter where a "
                   "sample is [1, H, W], [3, H, W] or [4, H, W]; or by letters, of one field or of each: nchw, "
                   "image=nchw,volume=ncdhw",
                   parse_layout, layout_text);
}

void add_data_names(OptionTable& table, std::string& x, std::string& y) {
  table
      .add(
          "x", x, "NAME",
          "HDF5 dataset that holds the samples of --data, for files made by others; several inputs: NAME,NAME, also of "
          "shards")
      .check(reject_empty);
  table.add("y", y, "NAME", "HDF5 dataset that holds their labels or targets; several of numbers: NAME,NAME")
      .check(reject_empty);
}

void add_verify_option(OptionTable& table, VerifyData& verify) {
  table.add_choice("verify", verify, "WHEN",
                   "recompute checksums of the shards beforehand; auto: where they hold under 4 GiB in all");
}

void add_allow_fill(OptionTable& table, bool& allow_fill) {
  table.add("allow-fill", allow_fill,
            "numbers that were never written into HDF5 files made by others are data: their fill value is meant");
}

namespace {

std::string parse_label(const std::string& text, std::optional<std::int64_t>& label) {
  label.reset();
  if (text.empty()) return "";  // as a run's configuration has it
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
                   "of masks: positions with this label belong to no class: they count in no loss and no metric",
                   parse_label, label_text);
}

void add_data_options(OptionTable& table, DataOptions& options) {
  table.group("Data");
  table.add("data", options.path, "PATH",
            "what to train on: a shard folder made by `lockstep pack`, a folder of HDF5 files or one such file; or a "
            "folder with train/ and test/ or validation/ inside");
  add_validation_data_option(table, options);
  table
      .add("x", options.x, "NAME",
           "HDF5 dataset that holds the samples, for files made by others; several inputs: NAME,NAME, also of shards")
      .check(reject_empty);
  table.add(
      "y", options.y, "NAME",
      "HDF5 dataset that holds the labels or targets; several of numbers: NAME,NAME; with --window also \"\": none");
  add_ignore_label(table, options.ignore_label);
  add_allow_fill(table, options.allow_fill);
  add_layout_option(table, options.layout);
  table
      .add_parsed(
          "normalize", options.normalize, "HOW",
          "how stored numbers become inputs: auto (range for bytes; of floats per-feature where their spread asks for "
          "it), none, range (the value range becomes 0 to 1), standard (all numbers together to mean 0, deviation 1), "
          "per-feature (each column of a table, each channel of images), per-image (each image), affine(SCALE,SHIFT)",
          parse_normalization, to_text)
      .left_open_by("auto");
  table
      .add_choice("normalize-targets", options.targets, "HOW",
                  "numbers to predict: standard (each target to mean 0, deviation 1; errors and predictions are told "
                  "in the units of the data all the same), none; auto: standard where their spread asks for it")
      .left_open_by("auto");
  add_unknown_categories_option(table, options.unknown_categories);
  table.add_parsed(
      "augment", options.augment, "HOW",
      "random changes of training images and volumes, comma-separated: pad=N, crop=N, crop=HxW or crop=DxHxW, "
      "area=SHARE (a random rectangle of at least this share of an image, scaled to the crop), flip (left and right) "
      "or flip=dhw (any of depth, height, width), symmetries (all flips and turns that keep the shape), "
      "brightness=V, contrast=LOW:HIGH; none. Validation sees the central crop",
      parse_augment, to_text);
  add_verify_option(table, options.verify);
  table.add_choice(
      "sampling", options.sampling, "HOW",
      "which training samples an epoch has: uniform (each of them once) or balanced (as many of each class, "
      "as many samples in all: those of rare classes come again and again, those of frequent ones in some "
      "of the epochs)");
  table.add("shuffle", options.shuffle, "visit the samples in a new order each epoch");
  table
      .add(
          "window", options.window, "STEPS",
          "of series of numbers (rows in the order of time, or samples of steps x numbers): forecast what follows each "
          "window of so many steps; --validation SHARE then keeps the end of each series. 0: none")
      .at_least(0);
  table.add("horizon", options.horizon, "STEPS", "of --window: how many steps are forecast").at_least(1);
  table.add("shift-windows", options.shift_windows,
            "of a corpus: in each epoch its windows begin at other tokens, drawn anew");
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
      .add_choice(
          "loss", options.kind, "NAME",
          "auto: softmax cross-entropy for classes, of which a sample has one; binary cross-entropy for rows of "
          "0 and 1, labels of which a sample has any; squared error for other numbers to predict. mean-absolute-error "
          "and huber bear outliers among these: huber is half the square of errors up to 1 (a standard deviation, "
          "where "
          "targets are standardised) and grows like the absolute error beyond. soft-cross-entropy is for a probability "
          "of each class in place of a class; dice is for masks: 1 - the soft Dice coefficient, the mean over the "
          "classes of a sample")
      .left_open_by("auto");
  table
      .add("label-smoothing", options.label_smoothing, "S",
           "cross-entropy: the target gives this share of its weight to all classes alike (of labels: to a half); "
           "validation does not")
      .at_least(0)
      .below(1);
  table
      .add_parsed(
          "class-weight", options.class_weights, "balanced|LIST",
          "factors of the losses of training samples, by their classes: balanced (samples / (classes * samples "
          "of the class): rare classes count as much as frequent ones) or a number for each class, in the "
          "order of their numbers. They are scaled to a mean of 1 over the training data; of masks each step's loss is "
          "divided by the sum of its positions' factors; validation counts every sample alike. --sampling balanced is "
          "for the same end: take one of the two",
          parse_class_weights, to_text)
      .contradicts("sampling");
  table
      .add("sample-weight", options.sample_weight, "NAME",
           "the data set of the training files that holds a factor for the loss of each sample, 0 or more; times the "
           "one of its class, where both are given, and scaled likewise")
      .contradicts("sampling");
}

void add_optimizer_options(OptionTable& table, model::OptimizerOptions& options) {
  table.group("Optimiser");
  table.add_choice("optimizer", options.kind, "NAME", "the update rule");
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

void add_learning_rate_options(OptionTable& table, model::ScheduleOptions& options, WorkOptions& work) {
  table.group("Learning rate");
  table.add("learning-rate", options.base, "RATE", "after warm-up; 0.001 with adam, adamw, lamb, else 0.1").above(0);
  table.add_choice("schedule", options.kind, "NAME", "how it changes");
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
  table.add("final-learning-rate", options.final_rate, "RATE", "cosine, polynomial: the rate at the end")
      .at_least(0)
      .only_with("schedule", {"cosine", "polynomial"});
  table.add("power", options.power, "P", "polynomial: the exponent").above(0).only_with("schedule", {"polynomial"});
  table.add("warmup-steps", options.warmup_steps, "STEPS", "rise linearly to the rate over this many steps")
      .at_least(0);
  table
      .add(
          "reference-batch", work.reference_batch, "SAMPLES",
          "the linear scaling rule: --learning-rate is meant for this global batch and is multiplied by global batch / "
          "SAMPLES; 0: off")
      .at_least(0);
}

void add_amount_options(OptionTable& table, WorkOptions& options) {
  table.group("Amount of work");
  const auto parse = [&options](const Option& row, const std::string& text) {
    return text == "auto" ? (options.epochs = 0, std::string()) : row.read(text, options.epochs);
  };
  table
      .add_free("epochs", Option::Shape::value, "N",
                "passes over the data; may be fractional; auto: one, and of small data so many that there are 1000 "
                "steps, but no more than 100",
                parse, [&options] { return options.epochs > 0 ? fmt::format("{}", options.epochs) : "auto"; })
      .above(0)
      .contradicts("steps")
      .left_open_by("auto");
  table.add("steps", options.steps, "N", "updates; instead of --epochs; 0: off").at_least(0).left_open_by("0");
}

void add_batch_options(OptionTable& table, WorkOptions& options) {
  table.group("Amount of work");
  table
      .add("batch", options.batch, "SAMPLES",
           "per rank and micro-step; where nobody says it, at most a sixteenth of the samples over all ranks, but 16")
      .at_least(1)
      .contradicts("global-batch");
  table
      .add("global-batch", options.global_batch, "SAMPLES",
           "per step, over all ranks and micro-steps; instead of --batch; 0: off")
      .at_least(0)
      .left_open_by("0");
  add_micro_step_options(table, options);
}

void add_micro_step_options(OptionTable& table, WorkOptions& options) {
  table.add("accumulate", options.accumulate, "N", "micro-steps per step: gradients are summed over N batches")
      .at_least(1)
      .at_most(1000000);
  table.add("reproducible", options.reproducible,
            "the same bits at any number of ranks: a step of --global-batch samples is computed in as many parts "
            "(virtual ranks) whoever computes them, and added up in one order; on CPUs of one kind, or GPUs of one");
  table
      .add("virtual-ranks", options.virtual_ranks, "N",
           "the parts of a step, at least as many as ranks; 0: 24, of small batches the half, a quarter, an eighth")
      .at_least(0)
      .left_open_by("0")
      .at_most(comm::SummationTree::kMaxTerms)
      .needs("reproducible");
  table.add("seed", options.seed, "N", "of initial weights and sample order; the same at any number of ranks");
}

void add_agree_options(OptionTable& table, AgreeOptions& options) {
  table.group("Agreement between ranks");
  table.add_parsed("agree", static_cast<AgreeMode&>(options), "MODE",
                   "all: every step sums the gradients of all ranks. local=STEPS: islands of ranks make STEPS steps by "
                   "themselves (a round), then an outer optimiser makes one of their weights: 1/STEPS of the bytes "
                   "between islands, for slow links; checkpoints, validations and stops wait for the end of a round. "
                   "quorum=RANKS: the first RANKS gradients of a step make the update, later ones are dropped. async: "
                   "servers keep the parameters, each gradient is an update as soon as it comes",
                   parse_agree, agree_text);
  table
      .add("islands", options.islands, "N",
           "groups of neighbouring ranks, as equal as can be, that agree in every step; 0: the ranks of a host are one")
      .at_least(0)
      .left_open_by("0")
      .needs("agree");
  table
      .add("agree-after", options.after, "STEP",
           "all ranks agree in every step up to this one, and the first round of local steps begins after it "
           "(post-local SGD): what is learnt first is what islands learn worst by themselves")
      .at_least(0)
      .needs("agree");
  table
      .add_choice("outer-optimizer", options.outer.kind, "NAME",
                  "what is done with the mean over the islands of how far they have come: average (local SGD: takes "
                  "it), momentum, slowmo (momentum in units of the learning rate), nesterov (DiLoCo)")
      .needs("agree");
  table.add("outer-rate", options.outer.rate, "RATE", "of the outer optimiser")
      .above(0)
      .needs("agree")
      .only_with("outer-optimizer", {"momentum", "slowmo", "nesterov"});
  table.add("outer-momentum", options.outer.momentum, "M", "likewise")
      .at_least(0)
      .below(1)
      .needs("agree")
      .only_with("outer-optimizer", {"momentum", "slowmo", "nesterov"});
  table
      .add("fragments", options.fragments, "F",
           "islands agree on the weights in so many equal parts, which take turns within a round")
      .at_least(1)
      .needs("agree");
  table
      .add("delay", options.delay, "STEPS",
           "steps that islands go on making while the sum of a fragment travels; fewer than a round has for each")
      .at_least(0)
      .needs("agree");
  table
      .add_parsed("servers", options.servers, "N|shared",
                  "who keeps the parameters, in equal parts: the last N ranks, which do nothing else, or every rank "
                  "beside its training; 0: the last rank with async, rank 0 beside its training with a quorum",
                  parse_servers, servers_text)
      .needs("agree");
  table
      .add("staleness", options.staleness, "STEPS",
           "how far the fastest rank may be ahead of the slowest; 0: the sums of all ranks; -1: no bound")
      .at_least(-1)
      .only_with("agree", {"async"});
  table
      .add_choice("stale-rate", options.stale_rate, "HOW",
                  "what becomes of a gradient of weights that have changed since: keep (it stays as it is), scale (the "
                  "learning rate is divided by the updates in between)")
      .only_with("agree", {"async"});
  table
      .add("replay", options.replay, "FILE",
           "repeat a run of async or a quorum bit for bit: the order of its gradients, arrivals-N of its folder")
      .needs("agree");
}

void add_validation_options(OptionTable& table, ValidationOptions& options) {
  table.group("Validation");
  table.add("evaluate-every", options.every, "STEPS", "0: once per epoch; -1: only at the end").at_least(-1);
  table.add("evaluation-batch", options.batch, "SAMPLES", "samples evaluated at once").at_least(1);
  table.add("evaluate-average", options.average, "validate with the averaged weights").needs("average-decay");
  table.add_choice(
      "best-by", options.best_by, "METRIC",
      "the metric of validations that says which checkpoint is the best, and that --patience and "
      "--target-metric look at; auto: accuracy, mean IoU of masks, mean absolute error or perplexity. "
      "balanced-accuracy (the "
      "mean of the classes' recalls), f1-macro and roc-auc (one against the rest; the mean over classes or "
      "labels) are for data in which some are rare. accuracy is also that of classes beside numbers to predict");
  table.add("patience", options.patience, "N", "stop when N validations in a row have brought nothing better; 0: never")
      .at_least(0);
  table.add("min-delta", options.min_delta, "VALUE", "better is by more than VALUE, in the units of the metric")
      .at_least(0)
      .needs("patience");
  table.add("target-metric", options.target_metric, "VALUE",
            "stop when the metric of --best-by reaches it: accuracy (0 to 1), F1 or area at least, loss, mean absolute "
            "error or perplexity at most VALUE");
}

void add_start_options(OptionTable& table, StartOptions& options) {
  table.group("Weights to begin with");
  table.add(
      "initialize-from", options.from, "PATH",
      "a run folder (its best checkpoint), a checkpoint file or FILE.safetensors (also GPT-2's): tensors of the same "
      "name begin with its values (the averages, where it validated with --evaluate-average), the others as usual; a "
      "run that resumes goes on with its own");
  table
      .add_parsed("reinitialize", options.reinitialize, "PATTERNS",
                  "tensors that begin as usual all the same, comma-separated, * for anything: dense_3/* for a new last "
                  "layer",
                  parse_patterns, to_text)
      .needs("initialize-from");
}

void add_tuning_options(OptionTable& table, TuningOptions& options) {
  table.group("What is trained");
  table.add_parsed("freeze", options.freeze, "PATTERNS",
                   "tensors that stay as they begin, comma-separated, * for anything: embedding/*,block_*. Nothing is "
                   "computed, kept or sent for them, and batch normalisation among them keeps its running statistics",
                   parse_patterns, to_text);
  table.add_parsed("learning-rate-scale", options.rate_scales, "PATTERN=FACTOR",
                   "tensors whose learning rate is the schedule's times FACTOR, likewise: head/*=10,block_*=0.1; where "
                   "several match, the last counts",
                   parse_rate_scales, to_text);
}

void add_writers_option(OptionTable& table, RunOptions& options) {
  table
      .add("checkpoint-writers", options.checkpoint_writers, "N",
           "ranks that write a checkpoint together, each a part; all hosts must see the folder; 0: rank 0 alone, with "
           "--shard-optimizer all ranks")
      .at_least(0);
}

void add_run_options(OptionTable& table, RunOptions& options) {
  table.group("Run folder");
  table.add("run", options.folder, "FOLDER",
            "configuration, log, metrics and checkpoints go there; default: runs/MODEL-DATE-TIME");
  table
      .add_parsed(
          "resume", options.resume, "FILE",
          "go on from the newest checkpoint in --run that verifies, or from FILE; starts anew where there is none yet",
          parse_resume, to_text)
      .alone_means("auto");
  table
      .add("new-optimizer-state", options.new_optimizer_state,
           "with --resume FILE: weights and place in the data are FILE's, the optimiser, which may be another, begins "
           "anew")
      .needs("resume");
  table
      .add("roll-back", options.roll_back, "N",
           "where the loss is not finite, or leaps (its mean over 20 steps is more than twice the best one so far), "
           "return to the last good checkpoint, at most N times; 0: stop")
      .at_least(0);
  table.add("roll-back-factor", options.roll_back_factor, "FACTOR", "of the learning rate, at each return")
      .above(0)
      .at_most(1)
      .needs("roll-back");
  table.add("force", options.force, "start over in a folder that holds a run already").contradicts("resume");
  table.add_parsed("checkpoint-every", options.checkpoint_every, "STEPS",
                   "steps, or a time: 90s, 10m, 2h; 0: once per epoch; -1: only at the end. SIGUSR2, or a file named "
                   "checkpoint-now in the run folder, brings one at once",
                   parse_every, to_text);
  table.add("keep", options.keep, "N", "newest checkpoints to keep").at_least(1);
  table
      .add("keep-best", options.keep_best, "N",
           "checkpoints with the best validation metrics to keep besides; checkpoints/best points at the best. Only "
           "checkpoints of steps that were validated count: give --evaluate-every and --checkpoint-every in steps that "
           "match; where --checkpoint-every is a time, each validation that is the best so far brings a checkpoint")
      .at_least(0);
  add_writers_option(table, options);
  table.add_parsed("time-limit", options.time_limit, "TIME",
                   "how long this launch may take, in seconds or as [D-]HH:MM[:SS]: it stops in time for a checkpoint, "
                   "with exit code 75; auto: until the Slurm job ends; none",
                   parse_limit, to_text);
  table
      .add("stop-at", options.stop_at, "STEP",
           "this launch stops after that step, validated and with a checkpoint, with exit code 75, and --resume goes "
           "on; "
           "below 1: that part of the run's steps; 0: at the end")
      .at_least(0);
}

CheckpointRows::CheckpointRows(OptionTable& table) : table_(table) {
  table
      .add("run", run_, "PATH", "a run folder, a checkpoints folder or a checkpoint file; --run itself may be left out")
      .positional();
  table
      .add(
          "checkpoint", checkpoint_, "WHICH",
          "of a run: best (by validation metric; where none was validated, the newest), latest, or a FILE, by its name "
          "in the run or with its path")
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
  table.add_choice("progress", progress, "WHEN", "the progress bar; auto: on a terminal", words);
}

void add_report_options(OptionTable& table, ReportOptions& options) {
  table.group("Reports");
  table.add("report-every", options.every, "STEPS", "0: about every second").at_least(0);
  table.add("tensorboard", options.tensorboard, "write TensorBoard event files");
  table
      .add("histograms-every", options.histograms_every, "STEPS",
           "weight and gradient histograms for TensorBoard; 0: never")
      .at_least(0)
      .only_with("tensorboard", {"yes"});
  add_progress_option(table, options.progress);
}

void add_nvls_option(OptionTable& table, ExecutionOptions& options) {
  table
      .add("nvls", options.nvls,
           "GPUs: NCCL may sum in the switches between them (NVLS); two runs may then differ in the last bits")
      .only_with("device", {"auto", "gpu"})
      .contradicts("ring");
}

void add_deadline_options(OptionTable& table, ExecutionOptions& options) {
  table.add("deadline", options.deadline, "SECONDS", "a rank that is silent for longer counts as dead and ends the job")
      .above(0);
  table
      .add("io-deadline", options.io_deadline, "SECONDS",
           "a file that does not come back from one read or write for longer ends the job: data, checkpoints, logs; "
           "until then the other ranks wait")
      .above(0);
}

void add_execution_options(OptionTable& table, ExecutionOptions& options) {
  table.group("Execution");
  table.add_choice(
      "device", options.device, "WHERE",
      "auto: GPUs where every rank has one of its own, the CPU where none has; gpu: GPUs, else an error; cpu: the CPU");
  table.add_choice("precision", options.precision, "NAME",
                   "of matrix products: fp32, tf32 (GPUs), bf16 (on GPUs activations, too); auto: bf16 on GPUs that "
                   "have it, else fp32. Sums, weights, gradients and statistics stay fp32");
  table
      .add_choice("bf16-unit", options.bf16_unit, "NAME",
                  "CPUs: instructions that multiply in bf16; auto: the fastest, measured at the start, if faster than "
                  "fp32. Emulations have the same bits in products and are slow: for tests")
      .only_with("precision", {"bf16"})
      .only_with("device", {"auto", "cpu"});
  table.add("threads", options.threads, "N", "threads per rank on CPUs")
      .at_least(1)
      .at_most(1024)
      .only_with("device", {"auto", "cpu"});
  table.add_choice(
      "transport", options.transport, "NAME",
      "how ranks on CPUs reduce; auto: shared memory where all ranks share a host, two-level (shared "
      "memory within hosts, rings between them) where some do, else the ring; mpi: the MPI library's own sums");
  add_deadline_options(table, options);
  table.add("share-gpu", options.share_gpu, "let several ranks use one GPU: slow, for tests")
      .only_with("device", {"auto", "gpu"});
}

void add_step_options(OptionTable& table, ExecutionOptions& options) {
  table
      .add("bucket-size", options.bucket_size, "ELEMENTS",
           "gradients that are reduced together, as one bucket; 0: by a fixed rule")
      .at_least(0);
  table
      .add("shard-optimizer", options.shard_optimizer,
           "each rank keeps 1/ranks of the optimiser's state, updates its part of the weights and sends them to all; "
           "steps and checkpoints are the same as without")
      .only_with("optimizer", {"sgd", "momentum", "nesterov", "adam", "adamw"});
  table.add_choice(
      "wire", options.wire, "NAME",
      "how gradients travel between GPUs and between hosts: fp32; bf16 (half the bytes, rounded at every hop); "
      "bf16-feedback (CPUs: what rounding takes away is added to the next step); int8-feedback (likewise, a quarter of "
      "the bytes)");
  add_all_reduce_option(table, options);
  table.add("ring", options.ring, "GPUs: reduce gradients by NCCL's ring and no other algorithm")
      .only_with("device", {"auto", "gpu"});
  add_nvls_option(table, options);
  table
      .add("cudnn-attention", options.cudnn_attention,
           "GPUs: attention by cuDNN in bf16 on Hopper, where it fits; else by kernels of this program")
      .only_with("device", {"auto", "gpu"});
  table.add("graph", options.graphs, "GPUs: record a step once (CUDA graphs) and replay it; the numbers are the same")
      .only_with("device", {"auto", "gpu"});
  table
      .add("tune", options.tune,
           "GPUs: what is quickest here, not what repeats: algorithms of products and convolutions by timing a few in "
           "the "
           "first step, attention's gradients added in any order; two runs may then differ in the last bits")
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
  table.add("dry-run", options.dry_run, "print the plan (parameters, memory, work per step, buckets) and stop");
}

OptionTable train_table(TrainOptions& options) {
  OptionTable table("lockstep train");
  add_train_options(table, options);
  table.find("data")->positional();
  return table;
}

}  // namespace lockstep::app
