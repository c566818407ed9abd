#include "app/plan/workload.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/choices.hpp"
#include "app/options/image_options.hpp"
#include "app/plan/column_match.hpp"
#include "app/plan/data_match.hpp"
#include "app/plan/network_defaults.hpp"
#include "app/plan/network_losses.hpp"
#include "app/plan/token_inputs.hpp"
#include "app/plan/tuning.hpp"
#include "app/report/figures.hpp"
#include "comm/summation_tree.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/datasets/window_dataset.hpp"
#include "io/foreign_files.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

constexpr double kMaxSteps = 9e15;  // whole numbers that a double represents exactly

}  // namespace

bool is_packed_data(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path / io::kManifestName, unknown);
}

DataPaths resolve_data_paths(const DataOptions& options) {
  if (options.path.empty())
    throw UsageError("--data is missing: name a shard folder that `lockstep pack` made, or an HDF5 file");
  DataPaths paths{options.path, options.validation};
  if (fs::is_directory(options.path / "train")) {
    paths.training = options.path / "train";
    if (paths.validation.empty() && options.validation_share == 0) {
      for (const char* name : {"validation", "test"}) {
        if (paths.validation.empty() && fs::is_directory(options.path / name)) paths.validation = options.path / name;
      }
    }
  }
  return paths;
}

model::ElementType element_type(io::FileType type) {
  switch (type) {
    case io::FileType::uint8:
      return model::ElementType::uint8;
    case io::FileType::float32:
      return model::ElementType::float32;
    case io::FileType::float64:
      return model::ElementType::float64;
    case io::FileType::int32:
      return model::ElementType::int32;
    default:
      throw std::invalid_argument(fmt::format("no model takes samples of type {}", io::name_of(type)));
  }
}

model::Tensor tensor_of(std::span<const std::byte> elements, io::FileType type, std::int64_t count) {
  const model::ElementType as = element_type(type);
  const auto columns =
      static_cast<std::int64_t>(elements.size() / model::size_of(as)) / std::max<std::int64_t>(1, count);
  return {const_cast<std::byte*>(elements.data()), as, count, columns};
}

model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info) {
  using Kind = Normalization::Kind;
  if (!info.inputs.empty() && (normalize.kind == Kind::range || normalize.kind == Kind::standard)) {
    throw UsageError(
        fmt::format("--normalize {} knows one scale for all numbers, and the samples have {} inputs: "
                    "per-feature gives each its own",
                    normalize.kind == Kind::range ? "range" : "standard", info.inputs.size()));
  }
  if (normalize.kind == Normalization::Kind::affine) return normalize.affine;
  const bool range = normalize.kind == Normalization::Kind::range ||
                     (normalize.kind == Normalization::Kind::automatic && info.x.type == io::FileType::uint8);
  const bool is_range_known = info.has_statistics || info.value_min != 0 || info.value_max != 1;
  if (normalize.kind == Normalization::Kind::range && !is_range_known && !info.tokens) {
    throw UsageError(
        "--normalize range needs the range of the values, which packed shards have, and bytes: run `lockstep pack`, or "
        "give --normalize per-feature or affine(SCALE,SHIFT)");
  }
  model::InputTransform transform;
  if (range && info.value_max > info.value_min) {
    transform.scale = static_cast<float>(1 / (info.value_max - info.value_min));
    transform.shift = static_cast<float>((0 - info.value_min) / (info.value_max - info.value_min));
  } else if (normalize.kind == Normalization::Kind::standard) {
    if (!info.has_statistics) {
      throw UsageError(
          "--normalize standard needs mean and deviation, which only packed shards have: run `lockstep pack`, or "
          "give --normalize affine(SCALE,SHIFT)");
    }
    const double deviation = info.standard_deviation > 0 ? info.standard_deviation : 1;
    transform.scale = static_cast<float>(1 / deviation);
    transform.shift = static_cast<float>(-info.mean / deviation);
  }
  return transform;
}

bool may_lack_classes(const io::DatasetInfo& info, const model::ModelOptions& options) {
  if (!info.has_masks()) return false;
  return info.ignored_label.has_value() || (options.augmentation && options.augmentation->shows_outside());
}

model::LossKind loss_kind(const TrainOptions& trained, const io::DatasetInfo& info) {
  const std::vector<model::DeclaredLoss>& declared = model::network_kind(trained.network).losses;
  if (declared.empty()) return loss_kind(trained.loss, info);
  const model::LossKind main = main_loss(declared, trained.loss.kind);
  for (const model::DeclaredLoss& loss : declared) {
    LossOptions one = trained.loss;
    one.kind = loss.kind;
    if (loss.classes > 0) continue;  // one of several targets, which losses_for() looks for
    // The data do not tell which of several targets are 0 and 1; and classes have weights for the other losses.
    if (loss.kind == model::LossKind::binary_cross_entropy && !info.labels_are_classes) continue;
    if (main != model::LossKind::soft_dice) one.class_weights = {}, one.label_smoothing = 0;
    try {
      loss_kind(one, info);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: losses: {}", loss.place, error.what()));
    }
  }
  return main;
}

model::LossKind loss_kind(const LossOptions& options, const io::DatasetInfo& info) {
  using enum model::LossKind;
  const bool classes = info.labels_are_classes;
  if (options.kind == softmax_cross_entropy && !classes) {
    throw UsageError("--loss softmax-cross-entropy needs class labels, and the data holds numbers to predict");
  }
  if (options.kind && model::is_of_numbers(*options.kind) && classes) {
    throw UsageError(
        fmt::format("--loss {} needs numbers to predict, and the data holds class labels; pack it with --regression",
                    word_of(options.kind)));
  }
  if (options.kind == binary_cross_entropy && !info.targets_are_binary) {
    throw UsageError(fmt::format("--loss binary-cross-entropy needs labels of 0 and 1, and the data holds {}",
                                 classes ? "classes" : "other numbers"));
  }
  if (options.kind == soft_cross_entropy && (classes || info.tokens || info.y.elements() < 2)) {
    throw UsageError(fmt::format(
        "--loss soft-cross-entropy needs a probability for each of two classes or more, and the data hold {}",
        info.tokens ? "text"
        : classes   ? "class labels: --loss softmax-cross-entropy learns them"
                    : "one number for each sample"));
  }
  if (options.kind == soft_dice) {
    if (!info.has_masks()) {
      throw UsageError("--loss dice needs masks, a class for each position of a sample, and the data hold none");
    }
    if (options.class_weights.any() || options.label_smoothing > 0) {
      throw UsageError(
          fmt::format("--{} is for cross-entropy, and --loss dice counts each class of a sample alike: "
                      "leave it out",
                      options.class_weights.any() ? "class-weight" : "label-smoothing"));
    }
  }
  if (options.kind) return *options.kind;
  if (classes) return softmax_cross_entropy;
  return info.targets_are_binary && info.y.elements() > 1 ? binary_cross_entropy : mean_squared_error;
}

namespace {

/// Samples of [height, width], [height, width, channels] or [depth, height, width, channels].
std::optional<model::ImageShape> image_shape(const io::Field& x) {
  const std::vector<std::int64_t>& shape = x.sample_shape;
  if (shape.size() == 2) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = 1};
  if (shape.size() == 3) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = shape[2]};
  if (shape.size() == 4) {
    return model::ImageShape{.height = shape[1], .width = shape[2], .channels = shape[3], .depth = shape[0]};
  }
  return std::nullopt;
}

/// Extents without channels, as a mask of such samples has them; `image`: of samples like x, perhaps cropped.
std::vector<std::int64_t> places_of(const io::Field& x, const model::ImageShape& image) {
  if (x.sample_shape.size() == 4) return {image.depth, image.height, image.width};
  return {image.height, image.width};
}

}  // namespace

std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info) {
  const bool per_image = options.normalize.kind == Normalization::Kind::per_image;
  if (info.tokens || (options.augment == AugmentOptions{} && !per_image)) return std::nullopt;
  if (!info.inputs.empty()) {
    throw UsageError(fmt::format("--{} needs samples of one image each, and these have {} inputs: leave it out",
                                 per_image ? "normalize per-image" : "augment", info.inputs.size()));
  }
  const auto image = image_shape(info.x);
  if (!image) {
    throw UsageError(fmt::format("--{} needs images or volumes, and the samples have {}: pack them so, or leave it out",
                                 per_image ? "normalize per-image" : "augment",
                                 counted(std::ssize(info.x.sample_shape), "extent")));
  }
  model::Augmentation spec = augmentation_of(options.augment, *image);
  spec.per_image = per_image;
  const std::vector<std::int64_t> places = places_of(info.x, *image);
  if (info.has_masks() && spec.moves_pixels() && info.y.sample_shape != places) {
    throw UsageError(
        fmt::format("--augment moves the pixels of samples and of their masks alike, and masks of [{}] have "
                    "other extents than samples of {}: leave flips and crops out",
                    fmt::join(info.y.sample_shape, ", "), fmt::join(places, " x ")));
  }
  const model::InputTransform transform = input_transform(options.normalize, info);
  spec.scale.fill(transform.scale);
  spec.shift.fill(transform.shift);
  return spec;
}

model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation) {
  if (info.tokens) {
    return {.features = info.x.elements(), .outputs = info.tokens->vocabulary, .image = {}, .tokens = true};
  }
  model::SampleShape shape{.features = info.x.elements(),
                           .outputs = info.labels_are_classes ? info.classes : info.y.elements(),
                           .image = image_shape(info.x)};
  for (const io::FieldRange& input : info.inputs) {
    shape.inputs.push_back({.name = input.field.name, .extents = input.field.sample_shape});
  }
  if (info.has_masks()) shape.mask = info.y.sample_shape;
  if (augmentation) {
    if (!shape.mask.empty() && augmentation->moves_pixels()) {
      shape.mask = places_of(info.x, augmentation->out);
    }
    shape.image = augmentation->out;
    shape.features = augmentation->out.elements();
  }
  return shape;
}

std::optional<model::SampleShape> shape_of_inputs(const model::NetworkOptions& network, std::int64_t outputs) {
  model::SampleShape shape{.outputs = outputs, .inputs = model::inputs_of(network)};
  if (shape.inputs.size() < 2) return std::nullopt;
  for (const model::SampleInput& input : shape.inputs) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : input.extents) elements *= extent;
    if (elements == 0) {
      throw UsageError(
          fmt::format("{}: the input {} takes an extent from the data (any), and there are none here: put "
                      "numbers in its place",
                      network.name, input.name));
    }
    shape.features += elements;
  }
  return shape;
}

namespace {

io::LabelMeaning label_meaning(const TrainOptions& options, const io::DataDescription* before) {
  using enum io::LabelMeaning;
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(options.network).losses;
  if (!losses.empty()) return model::takes_classes(losses[0].kind) ? classes : numbers;
  if (options.loss.kind) return model::takes_classes(*options.loss.kind) ? classes : numbers;
  if (before == nullptr) return automatic;
  switch (before->labels) {
    case io::Labels::classes:
      return classes;
    case io::Labels::targets:
      return numbers;
    case io::Labels::none:
      break;
  }
  return automatic;
}

/// The names of the data's inputs that the network reads, as far as they are known.
std::vector<std::string> wanted_inputs(const TrainOptions& options, const io::DataDescription* before) {
  std::vector<std::string> names;
  if (before != nullptr) {
    for (const io::Field& input : before->inputs) names.push_back(input.name);
    if (names.empty() && before->x.name != DataOptions{}.x) names.push_back(before->x.name);
  }
  // "x" stands for all inputs of shards, unless the user names an input x.
  if (names.empty() && options.data.x == DataOptions{}.x && options.is_given("x")) names.push_back(options.data.x);
  if (!names.empty()) return names;
  for (const model::SampleInput& input : model::inputs_of(options.network)) names.push_back(input.name);
  if (names.empty() && before != nullptr && !before->x.name.empty()) names.push_back(before->x.name);
  return names;
}

/// Names of the fields that lie side by side in `row`, or of `row` alone.
std::vector<std::string> names_of(std::span<const io::FieldRange> fields, const io::Field& row) {
  std::vector<std::string> names;
  for (const io::FieldRange& range : fields) names.push_back(range.field.name);
  if (names.empty() && !row.name.empty()) names.push_back(row.name);
  return names;
}

/// In files of other programs, several inputs have the datasets that the network names, unless the user names others.
std::string x_of_files(const DataFormat& format) {
  return format.x == DataOptions{}.x && format.inputs.size() > 1 ? fmt::format("{}", fmt::join(format.inputs, ","))
                                                                 : format.x;
}

}  // namespace

DataFormat data_format(const TrainOptions& options, const io::DataDescription* before) {
  DataFormat format{.network = model::network_kind(options.network).name,
                    .context = model::tokens_per_sample(options.network),
                    .x = options.data.x,
                    .y = options.data.y,
                    .inputs = wanted_inputs(options, before),
                    .gaps = {.accept_unwritten = options.data.allow_fill},
                    .seed = options.work.seed,
                    .shift_windows = options.data.shift_windows,
                    .is_windowed = options.data.window > 0,
                    .layout = options.data.layout,
                    .labels = label_meaning(options, before),
                    .ignored_label = options.data.ignore_label};
  // "y" stands for all targets of shards, unless the user names a target y, or did so when the run began.
  const bool is_one =
      before == nullptr ? options.is_given("y") : before->labels == io::Labels::targets && before->target_names.empty();
  if (options.data.y == DataOptions{}.y && is_one) format.targets = {options.data.y};
  for (const model::DeclaredLoss& loss : model::network_kind(options.network).losses) {
    if (!format.ignored_label) format.ignored_label = loss.ignored;
  }
  if (format.context > 0 && format.is_windowed) {
    throw UsageError(fmt::format("--window is for series of numbers, and --model {} reads tokens", format.network));
  }
  if (format.is_windowed) {
    format.labels = io::LabelMeaning::numbers;
    if (options.data.y == DataOptions{}.y) format.unlabelled = io::Unlabelled::accepted;
  }
  if (format.context > 0) {
    format.y.clear();
    // A checkpoint may contain the default name for samples, which no user has given.
    if (!options.is_given("x") && options.data.x == DataOptions{}.x) format.x = io::kTokensName;
  }
  return format;
}

void inspect_data(const DataFormat& format, const fs::path& path) {
  io::inspect_in_child(
      "/proc/self/exe",
      {.path = path, .x = x_of_files(format), .y = format.y, .unlabelled = format.unlabelled, .gaps = format.gaps}, {});
}

std::unique_ptr<io::Dataset> open_dataset(const DataFormat& format, const fs::path& path, io::IoDeadline* deadline,
                                          const SharedData& shared) {
  const auto together = shared.find(path);
  const std::shared_ptr<io::SharedShards> shards = together == shared.end() ? nullptr : together->second;
  if (format.context > 0) {
    return std::make_unique<io::TokenDataset>(io::TokenDatasetOptions{.path = path,
                                                                      .x = format.x,
                                                                      .context = format.context,
                                                                      .seed = format.seed,
                                                                      .shift = format.shift_windows,
                                                                      .deadline = deadline,
                                                                      .shared = shards});
  }
  const bool tokens = [&] {
    if (shards) return shards->manifest().tokens.has_value();
    const io::IoDeadline::Operation looking(deadline, io::IoDeadline::Kind::reading, path);
    return io::holds_tokens(path);
  }();
  if (tokens) {
    throw UsageError(fmt::format("{} holds tokens, and --model {} reads samples: give --model {}", path.string(),
                                 format.network, fmt::join(model::language_models(), " or --model ")));
  }
  return std::make_unique<io::ShardedDataset>(
      io::DatasetOptions{.path = path,
                         .x = is_packed_data(path) ? format.x : x_of_files(format),
                         .y = format.y,
                         .wanted = format.inputs,
                         .wanted_targets = format.targets,
                         .weight = format.weight,
                         .unlabelled = format.unlabelled,
                         .gaps = format.gaps,
                         .layout = format.layout,
                         .labels = format.labels,
                         .ignored_label = format.ignored_label,
                         .wide_targets = true,
                         .deadline = deadline,
                         .shared = shards});
}

std::unique_ptr<io::Dataset> windowed(const DataOptions& options, std::unique_ptr<io::Dataset> data,
                                      const fs::path& path, bool to_the_end) {
  if (options.window == 0) return data;
  return std::make_unique<io::WindowDataset>(
      std::move(data),
      io::WindowOptions{.window = options.window, .horizon = options.horizon, .to_the_end = to_the_end}, path);
}

std::unique_ptr<io::Dataset> part_of(std::shared_ptr<io::Dataset> data, double share, io::SplitDataset::Part part) {
  if (!data->info().windows) return std::make_unique<io::SplitDataset>(std::move(data), share, part);
  return std::make_unique<io::WindowPart>(std::move(data), share, part);
}

bool is_recurrent(const model::Network& network) noexcept { return !network.recurrent_state().all().empty(); }

void require_labels(const io::DatasetInfo& info, const fs::path& path) {
  if (!info.y.name.empty()) return;
  throw UsageError(fmt::format("{} has no labels or targets: pack it again with --y FILE (csv: --label-column NAME)",
                               path.string()));
}

/// The virtual ranks of a run. The rule does not depend on the number of ranks; otherwise the bits would.
std::int64_t virtual_ranks(const WorkOptions& options, std::int64_t global_batch, int world) {
  // 24 is divisible by the usual numbers of ranks: 1, 2, 3, 4, 6, 8, 12.
  constexpr std::int64_t kUsual = 24;
  std::int64_t parts = options.virtual_ranks > 0 ? options.virtual_ranks : kUsual;
  while (options.virtual_ranks == 0 && parts > global_batch) parts /= 2;
  const std::string step = fmt::format("--reproducible: a step of {} in {} on {}", counted(global_batch, "sample"),
                                       counted(parts, "part"), counted(world, "rank"));
  if (parts > global_batch || parts > comm::SummationTree::kMaxTerms) {
    throw UsageError(
        fmt::format("{}: every part needs a sample: give a larger --global-batch or fewer --virtual-ranks", step));
  }
  if (parts < world && world > global_batch) {
    throw UsageError(fmt::format(
        "{}: every rank needs a part, and every part a sample: give a larger --global-batch or fewer ranks", step));
  }
  if (parts < world) {
    throw UsageError(
        fmt::format("{}: every rank needs a part: give fewer ranks, or --virtual-ranks {} to every run that is to have "
                    "the same bits",
                    step, std::min(global_batch, divide_up(world, kUsual) * kUsual)));
  }
  return parts;
}

RankShare share_of(const WorkPlan& work, int rank, int world) {
  const std::int64_t parts = work.virtual_ranks > 0 ? work.virtual_ranks : world;
  const std::int64_t first = parts * rank / world, end = parts * (rank + 1) / world;
  const std::int64_t first_sequence = work.global_batch * first / parts;
  return {.micro_steps = work.virtual_ranks > 0 ? end - first : work.accumulate,
          .first_virtual_rank = first,
          .sequences = {.all = work.global_batch,
                        .first = first_sequence,
                        .count = work.global_batch * end / parts - first_sequence}};
}

/// More epochs for small data.
double usual_epochs(const TrainOptions& options, std::int64_t steps_per_epoch) {
  constexpr std::int64_t kFewSteps = 1000, kManyEpochs = 100;
  if (model::tokens_per_sample(options.network) > 0) return 1;
  return static_cast<double>(std::clamp<std::int64_t>(divide_up(kFewSteps, steps_per_epoch), 1, kManyEpochs));
}

/// Samples of a step if the user gives none: small data get more and smaller steps.
std::int64_t usual_batch(const TrainOptions& options, std::int64_t samples, std::int64_t wanted) {
  constexpr std::int64_t kShare = 16, kMin = 16;
  const bool said = options.was_set("batch") || options.is_from_network("batch");
  if (said || options.work.global_batch > 0 || model::tokens_per_sample(options.network) > 0) return wanted;
  return std::min(wanted, std::max(kMin, samples / kShare));
}

std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch, bool stateful) {
  return divide_up(io::epoch_samples(samples, global_batch, stateful), global_batch);
}

WorkPlan work_plan(const TrainOptions& options, std::int64_t samples, int world, const model::NetworkKind* recurrent) {
  const bool stateful = recurrent != nullptr;
  WorkPlan work;
  work.accumulate = options.work.accumulate;
  const std::int64_t parts = work.accumulate * world;
  const std::int64_t wanted = options.work.global_batch > 0          ? options.work.global_batch
                              : options.work.batch > samples / parts ? samples  // the product may exceed 64 bits
                                                                     : options.work.batch * parts;
  if (stateful && wanted > samples) {
    throw UsageError(
        fmt::format("a global batch of {} sequences is wider than the data, which has {} windows: give a smaller "
                    "--batch{}{}",
                    wanted, samples, recurrent->window.empty() ? "" : " or --", recurrent->window));
  }
  // Every micro-step of every rank has a sample, unless that would make the bits depend on the ranks.
  const std::int64_t least = options.work.reproducible ? 1 : parts;
  work.global_batch = std::min(std::max<std::int64_t>(usual_batch(options, samples, wanted), least), samples);
  work.epoch_samples = io::epoch_samples(samples, work.global_batch, stateful);
  work.most_sequences = divide_up(work.global_batch, world);
  work.largest_part = divide_up(work.most_sequences, work.accumulate);
  if (options.work.reproducible) {
    if (options.work.global_batch == 0) {
      throw UsageError(
          "--reproducible needs --global-batch: the samples of a step, which --batch makes depend on the "
          "number of ranks");
    }
    if (work.accumulate > 1) {
      throw UsageError(
          "--accumulate has no meaning with --reproducible: --virtual-ranks says in how many parts a step "
          "is computed");
    }
    work.virtual_ranks = virtual_ranks(options.work, work.global_batch, world);
    work.accumulate = divide_up(work.virtual_ranks, world);
    work.largest_part = divide_up(work.global_batch, work.virtual_ranks);
    work.most_sequences = 0;
    for (int rank = 0; rank < world; ++rank) {
      work.most_sequences = std::max(work.most_sequences, share_of(work, rank, world).sequences.count);
    }
  }
  work.steps_per_epoch = steps_per_epoch(samples, work.global_batch, stateful);
  work.epochs = options.work.epochs > 0 ? options.work.epochs : usual_epochs(options, work.steps_per_epoch);
  const double steps = std::ceil(work.epochs * static_cast<double>(work.steps_per_epoch));
  if (options.work.steps <= 0 && steps > kMaxSteps) {
    throw UsageError(fmt::format("--epochs {:g} are {:g} steps: more than can be counted", work.epochs, steps));
  }
  go_on_at(work, options, 0, {});
  return work;
}

void go_on_at(WorkPlan& work, const TrainOptions& options, std::int64_t step, DataCursor cursor) {
  const std::int64_t left_of_epoch = divide_up(work.epoch_samples - cursor.position, work.global_batch);
  work.epoch_shift = (cursor.epoch + 1) * work.steps_per_epoch - left_of_epoch - step;
  const double steps = std::ceil(work.epochs * static_cast<double>(work.steps_per_epoch));
  work.total_steps =
      options.work.steps > 0 ? options.work.steps : std::max<std::int64_t>(1, std::llround(steps) - work.epoch_shift);
  const auto interval = [&](std::int64_t every) {
    return every == 0 ? Interval{.steps = work.steps_per_epoch, .shift = work.epoch_shift}
                      : Interval{.steps = std::max<std::int64_t>(0, every)};
  };
  work.evaluate_every = interval(options.validation.every);
  const CheckpointEvery& checkpoint = options.run.checkpoint_every;
  work.checkpoint_every = checkpoint.seconds > 0 ? Interval{} : interval(checkpoint.steps);
}

namespace {

/// Small data get a smaller network unless the user decides otherwise. Weights of another run need that run's network.
model::NetworkOptions network_for(const TrainOptions& options, std::int64_t samples) {
  model::NetworkOptions network = options.network;
  if (samples >= model::kSmallData || !options.start.from.empty()) return network;
  for (const auto& [name, value] : model::network_kind(network).small_data) {
    if (!options.was_set(name)) network.values.insert_or_assign(name, value);
  }
  return network;
}

/// Limits the scores of all validation samples, on all ranks together.
void require_room_for_scores(const io::Dataset& validation, std::int64_t outputs) {
  constexpr std::int64_t kMaxScores = std::int64_t{1} << 29;  // 4 GiB
  const std::int64_t samples = validation.info().samples;
  if (samples <= kMaxScores / outputs) return;
  throw UsageError(
      fmt::format("--best-by roc-auc keeps a score for each validation sample and output, {} x {}, and goes "
                  "up to {} of them: give --best-by balanced-accuracy or f1-macro, or less validation data",
                  with_commas(samples), with_commas(outputs), with_commas(kMaxScores)));
}

/// Refuses options that mean nothing with --window, or nothing without it.
void require_windows_of_series(const TrainOptions& options) {
  if (options.data.window == 0) {
    if (options.data.y.empty()) {
      throw UsageError(
          "--y \"\" leaves the labels out, and only forecasts of series (--window) are learnt without: name them");
    }
    if (options.data.horizon != DataOptions{}.horizon)
      throw UsageError("--horizon is for forecasts of series: give --window, too");
    return;
  }
  if (!options.loss.sample_weight.empty()) {
    throw UsageError("--sample-weight is for samples, and --window makes each of many rows: leave one of them away");
  }
  if (!(options.data.augment == AugmentOptions{}))
    throw UsageError("--augment is for images, and --window reads series");
}

/// A network's file that names its losses leaves no choice.
void require_no_other_loss(const TrainOptions& options) {
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(options.network).losses;
  if (losses.empty() || !options.is_given("loss")) return;
  throw UsageError(fmt::format("--loss {}: {} names its losses itself: leave --loss out", word_of(options.loss.kind),
                               losses[0].place.substr(0, losses[0].place.rfind(':'))));
}

/// A network would take volumes of one plane for images.
void require_planes(const io::DatasetInfo& info, const model::NetworkKind& kind, const fs::path& path) {
  const std::vector<std::int64_t>& shape = info.x.sample_shape;
  if (info.tokens || kind.reads == model::Reads::features || shape.size() != 4 || shape[0] > 1) return;
  throw UsageError(
      fmt::format("{}: samples of {} are volumes of one plane, which a network would take for images: store "
                  "them as {}",
                  path.string(), fmt::join(shape, " x "), fmt::join(shape.begin() + 1, shape.end(), " x ")));
}

/// Tokens among the numbers of a sample are checked as they are read.
void check_tokens(Workload& workload) {
  const auto check = [&](std::unique_ptr<io::Dataset>& data, const fs::path& path) {
    if (!data) return;
    std::vector<io::TokenNumbers> tokens = tokens_of(*workload.network, data->info(), path);
    if (tokens.empty()) return;
    data = std::make_unique<io::CheckedTokensDataset>(std::move(data), std::move(tokens), path);
  };
  check(workload.training, workload.paths.training);
  check(workload.validation, workload.paths.validation.empty() ? workload.paths.training : workload.paths.validation);
  if (workload.model.augmentation && !workload.network->token_ranges().empty()) {
    throw UsageError("--augment is for images, and the network reads tokens: leave it out");
  }
}

/// Splits a share of the training samples off for validation.
void split_training(double share, Workload& workload) {
  const std::shared_ptr<io::Dataset> whole = std::move(workload.training);
  using enum io::SplitDataset::Part;
  workload.training = part_of(whole, share, training);
  workload.validation = part_of(whole, share, validation);
}

/// Brings training data with another order of columns or classes into the order that a network knows.
void match_training(const KnownData& known, io::UnknownCategories unknown, Workload& workload) {
  const std::filesystem::path& path = workload.paths.training;
  const bool required = known.fit == KnownData::Fit::required;
  try {
    const ColumnMatch columns = match_columns(known.description.table, workload.training->info(), path, unknown);
    workload.training = arranged(std::move(workload.training), known.description.table, columns);
    workload.notes.insert(workload.notes.end(), columns.notes.begin(), columns.notes.end());
    workload.warnings.insert(workload.warnings.end(), columns.warnings.begin(), columns.warnings.end());
  } catch (const UsageError& error) {
    if (required) throw;
    workload.warnings.push_back(fmt::format("{}: the columns are taken as they are", error.what()));
  }
  const io::DatasetInfo& info = workload.training->info();
  const std::vector<std::string>& names = known.description.class_names;
  if (info.tokens || !info.labels_are_classes || known.description.labels != io::Labels::classes ||
      info.classes != known.description.classes || info.class_names == names) {
    return;
  }
  try {
    const ClassMatch classes = match_classes(names, known.description.classes, info, path);
    if (!classes.note.empty()) workload.notes.push_back(classes.note);
    workload.training = relabelled(std::move(workload.training), classes, names, info.classes);
  } catch (const UsageError& error) {
    if (required)
      workload.warnings.push_back(fmt::format("{} (--reinitialize draws the last layer anew)", error.what()));
  }
}

/// Brings validation data with another order of columns or classes into the order of the training data.
void match_validation(Workload& workload, const std::optional<io::TableSchema>& table, io::UnknownCategories unknown) {
  const io::DatasetInfo& info = workload.training->info();
  const ColumnMatch columns = match_columns(table, workload.validation->info(), workload.paths.validation, unknown);
  workload.validation = arranged(std::move(workload.validation), table, columns);
  workload.notes.insert(workload.notes.end(), columns.notes.begin(), columns.notes.end());
  workload.warnings.insert(workload.warnings.end(), columns.warnings.begin(), columns.warnings.end());
  const io::DatasetInfo& other = workload.validation->info();
  if (info.tokens || !info.labels_are_classes || !other.labels_are_classes || other.classes > info.classes) return;
  ClassMatch match = match_classes(info.class_names, info.classes, other, workload.paths.validation);
  if (!match.note.empty()) workload.notes.push_back(match.note);
  if (!match.warning.empty()) workload.warnings.push_back(match.warning);
  workload.validation = relabelled(std::move(workload.validation), match, info.class_names, info.classes);
}

}  // namespace

Workload prepare_workload(const TrainOptions& given, int world, io::IoDeadline* deadline, const SharedData& shared,
                          const KnownData* known) {
  Workload workload;
  TrainOptions& options = workload.options.emplace(given);
  workload.paths = resolve_data_paths(options.data);
  const DataPaths& paths = workload.paths;
  const bool same_labels = known != nullptr && known->fit == KnownData::Fit::required;
  require_windows_of_series(options);
  const DataFormat format = data_format(options, same_labels ? &known->description : nullptr);
  // Names of datasets apply to data made by other programs, if only one of the two is such data.
  DataFormat packed = format;
  if (!paths.validation.empty() && is_packed_data(paths.training) != is_packed_data(paths.validation)) {
    packed.x = "x";
    if (!packed.y.empty()) packed.y = "y";
  }
  const auto format_of_data = [&](const fs::path& path) {
    DataFormat of_data = is_packed_data(path) ? packed : format;
    if (is_packed_data(path)) of_data.ignored_label = options.data.ignore_label;  // they know their own
    if (is_packed_data(path) && !is_packed_data(paths.training)) of_data.layout = io::Layout::channels_last;
    if (workload.training) {
      const io::DatasetInfo& of_training = workload.training->info();
      of_data.inputs = names_of(of_training.inputs, of_training.x);
      of_data.targets = names_of(of_training.targets, of_training.y);
      // Packed data know their own.
      of_data.ignored_label = is_packed_data(path) ? std::nullopt : workload.training->info().ignored_label;
      of_data.labels =
          workload.training->info().labels_are_classes ? io::LabelMeaning::classes : io::LabelMeaning::numbers;
    }
    return of_data;
  };
  DataFormat weighted = format_of_data(paths.training);
  weighted.weight = options.loss.sample_weight;
  workload.training = open_dataset(weighted, paths.training, deadline, shared);
  if (workload.training->info().holds_weights && weighted.weight.empty()) {
    workload.notes.push_back(
        fmt::format("{} holds a weight for each sample, which is not used: --sample-weight {} does",
                    paths.training.string(), io::kWeightName));
  }
  const std::vector<model::DeclaredLoss>& declared = model::network_kind(options.network).losses;
  workload.training = with_class_targets(std::move(workload.training), declared, paths.training);
  if (known != nullptr) match_training(*known, options.data.unknown_categories, workload);
  const std::optional<io::TableSchema> columns = workload.training->info().table;
  workload.training = windowed(options.data, std::move(workload.training), paths.training);
  if (same_labels) require_same_fields(known->description, workload.training->info(), paths.training);
  if (options.data.validation_share > 0) split_training(options.data.validation_share, workload);
  const io::DatasetInfo& info = workload.training->info();
  require_labels(info, paths.training);
  require_no_other_loss(options);
  workload.model.loss = loss_kind(options, info);
  if (std::string note = fit_network_defaults(info, workload.model.loss, options); !note.empty()) {
    workload.notes.push_back(std::move(note));
  }
  if (!paths.validation.empty()) {
    workload.validation = open_dataset(format_of_data(paths.validation), paths.validation, deadline, shared);
    workload.validation = with_class_targets(std::move(workload.validation), declared, paths.validation);
    if (options.data.window == 0) require_labels(workload.validation->info(), paths.validation);
    match_validation(workload, columns, options.data.unknown_categories);
    workload.validation = windowed(options.data, std::move(workload.validation), paths.validation);
    const io::DatasetInfo& other = workload.validation->info();
    if (info.tokens && other.tokens && !io::same_vocabulary(*info.tokens, *other.tokens)) {
      throw UsageError(fmt::format("{} was made with another vocabulary than {}: pack it with --vocabulary-from {}",
                                   paths.validation.string(), paths.training.string(), paths.training.string()));
    }
    require_same_inputs(info.inputs, other.inputs, paths.validation);
    require_same_extents(info.x, other.x, "", paths.validation);
    require_same_targets(io::names_of_numbers(info.targets), other.targets, paths.validation);
    if (other.x.elements() != info.x.elements() || other.labels_are_classes != info.labels_are_classes ||
        other.classes > info.classes || (!info.labels_are_classes && other.y.elements() != info.y.elements()) ||
        ((info.has_masks() || other.has_masks()) && other.y.sample_shape != info.y.sample_shape) ||
        (workload.model.loss == model::LossKind::binary_cross_entropy && !other.targets_are_binary)) {
      const auto learnt = [](const io::DatasetInfo& data) {
        if (data.has_masks()) {
          return fmt::format("masks of [{}] with {}", fmt::join(data.y.sample_shape, ", "),
                             counted(data.classes, "class"));
        }
        if (data.labels_are_classes) return counted(data.classes, "class");
        return counted(data.y.elements(), data.targets_are_binary ? "label" : "regression target");
      };
      throw UsageError(
          fmt::format("{} does not fit {}: samples of {} and {} against {} and {}; pack both in the same way",
                      paths.validation.string(), paths.training.string(), counted(other.x.elements(), "number"),
                      learnt(other), counted(info.x.elements(), "number"), learnt(info)));
    }
  }
  if (options.validation.patience > 0 && !workload.validation) {
    throw UsageError("--patience needs validation data: give --validation");
  }
  if (options.validation.best_by != BestBy::usual && !workload.validation) {
    throw UsageError("--best-by needs validation data: name it with --validation");
  }
  if (options.validation.target_metric && !workload.validation) {
    throw UsageError("--target-metric needs validation data: name it with --validation");
  }

  if (info.has_masks() && workload.validation && options.validation.best_by == BestBy::usual) {
    options.validation.best_by = BestBy::mean_iou;
  }
  if (known == nullptr) require_planes(info, model::network_kind(options.network), paths.training);
  workload.model.augmentation = augmentation(options.data, info);
  if (!info.tokens) workload.model.input_transform = input_transform(options.data.normalize, info);
  workload.model.label_smoothing = static_cast<float>(options.loss.label_smoothing);
  workload.optimizer = options.optimizer;
  workload.seed = options.work.seed;
  workload.shuffle = options.data.shuffle;
  const model::SampleShape shape = sample_shape(info, workload.model.augmentation);
  const model::NetworkKind& kind = model::network_kind(options.network);
  try {
    workload.network_options = network_for(options, info.samples);
    workload.network = model::make_network(workload.network_options, shape);
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
  check_tokens(workload);
  apply_tuning(options.tuning, *workload.network);
  workload.task.emplace(workload.model.loss, *workload.network, info.tokens ? info.tokens->bytes_per_token : 0);
  const NetworkLosses losses = losses_for(kind.losses, workload.model.loss, info, *workload.network);
  workload.model.losses = losses.terms;
  workload.task->set_losses(losses.terms, losses.names);
  workload.task->choose(options.validation.best_by);
  if (options.validation.best_by == BestBy::roc_auc) require_room_for_scores(*workload.validation, shape.outputs);
  workload.work = work_plan(options, info.samples, world, is_recurrent(*workload.network) ? &kind : nullptr);
  workload.model.sequences = workload.work.most_sequences;
  workload.model.sample_type = widest_sample_type(workload);
  workload.model.max_batch = workload.work.largest_part;
  if (workload.validation) {
    workload.model.max_batch =
        std::max(workload.model.max_batch, std::min(options.validation.batch, workload.validation->info().samples));
  }
  return workload;
}

model::ElementType widest_sample_type(const Workload& workload) {
  const model::ElementType training = element_type(workload.training->x_type());
  if (!workload.validation) return training;
  const model::ElementType validation = element_type(workload.validation->x_type());
  return model::size_of(validation) > model::size_of(training) ? validation : training;
}

DataCursor cursor_after(const WorkPlan& work, DataCursor from, std::int64_t steps) {
  if (steps <= 0) return from;
  const std::int64_t first = divide_up(work.epoch_samples - from.position, work.global_batch);
  if (steps <= first) {
    return {from.epoch, std::min(work.epoch_samples, from.position + steps * work.global_batch)};
  }
  const std::int64_t left = steps - first - 1;
  return {from.epoch + 1 + left / work.steps_per_epoch,
          std::min(work.epoch_samples, (left % work.steps_per_epoch + 1) * work.global_batch)};
}

io::PrefetcherOptions reading(const Workload& workload, int rank, int world) {
  const bool virtually = workload.work.virtual_ranks > 0;
  const RankShare share = share_of(workload.work, rank, world);
  return {.order = {.seed = workload.seed, .shuffle = workload.shuffle, .shard_counts = {}},
          .stateful = is_recurrent(*workload.network),
          .global_batch = workload.work.global_batch,
          .accumulate = virtually ? 1 : workload.work.accumulate,
          .rank = virtually ? static_cast<int>(share.first_virtual_rank) : rank,
          .world = virtually ? static_cast<int>(workload.work.virtual_ranks) : world,
          .parts = virtually ? static_cast<int>(share.micro_steps) : 1,
          .foresees_steps = workload.model.weighted && !workload.network->sample_shape().mask.empty()};
}

}  // namespace lockstep::app
