#include "app/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/image_options.hpp"
#include "io/prefetcher.hpp"
#include "io/sharded_dataset.hpp"
#include "io/token_dataset.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// The two numbers of "affine(SCALE,SHIFT)".
model::InputTransform parse_affine(const std::string& text) {
  model::InputTransform transform;
  const char* end = text.data() + text.size();
  const auto scale = std::from_chars(text.data() + std::string_view("affine(").size(), end, transform.scale);
  if (scale.ec == std::errc{} && scale.ptr != end && *scale.ptr == ',') {
    const auto shift = std::from_chars(scale.ptr + 1, end, transform.shift);
    if (shift.ec == std::errc{} && shift.ptr + 1 == end && *shift.ptr == ')') return transform;
  }
  throw UsageError(fmt::format("--normalize {}: expected affine(SCALE,SHIFT), as in affine(0.5,-1)", text));
}

constexpr double kMostSteps = 9e15;  // whole numbers that a double holds exactly

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

DataPaths resolve_data_paths(const TrainOptions& options) {
  if (options.data.empty())
    throw UsageError("--data is missing: name a shard folder that `lockstep pack` made, or an HDF5 file");
  DataPaths paths{options.data, options.validation};
  if (fs::is_directory(options.data / "train")) {
    paths.training = options.data / "train";
    if (paths.validation.empty()) {
      for (const char* name : {"validation", "test"}) {
        if (paths.validation.empty() && fs::is_directory(options.data / name)) paths.validation = options.data / name;
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

model::NetworkOptions network_options(const TrainOptions& options) {
  model::NetworkOptions network;
  network.name = options.model;
  if (options.model != "linear") network.hidden = options.hidden;
  network.depth = options.depth;
  network.layers = options.layers;
  network.width = options.width;
  network.heads = options.heads;
  network.dropout = options.dropout;
  if (options.tied != "auto") network.tied = options.tied == "yes";
  network.synchronize_batch_norm = options.sync_batch_norm;
  try {
    network.activation = model::parse_activation(options.activation);
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--activation: {}", e.what()));
  }
  try {
    if (options.weight_init != "auto") network.weight_initializer = model::parse_initializer(options.weight_init);
    if (options.bias_init != "auto") network.bias_initializer = model::parse_initializer(options.bias_init);
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--weight-init or --bias-init: {}", e.what()));
  }
  return network;
}

model::OptimizerOptions optimizer_options(const TrainOptions& options) {
  model::OptimizerOptions optimizer;
  try {
    optimizer.kind = model::parse_optimizer(options.optimizer);
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--optimizer: {}", e.what()));
  }
  optimizer.momentum = options.momentum;
  optimizer.beta1 = options.beta1;
  optimizer.beta2 = options.beta2;
  optimizer.epsilon = options.epsilon;
  optimizer.l2 = options.l2;
  optimizer.weight_decay = options.weight_decay;
  optimizer.clip_norm = options.clip_norm;
  optimizer.clip_value = options.clip_value;
  optimizer.trust = options.trust;
  optimizer.average_decay = options.average_decay;
  return optimizer;
}

model::InputTransform input_transform(const TrainOptions& options, const io::DatasetInfo& info) {
  if (options.normalize.starts_with("affine(")) return parse_affine(options.normalize);
  const bool range =
      options.normalize == "range" || (options.normalize == "auto" && info.x.type == io::FileType::uint8);
  model::InputTransform transform;
  if (range && info.value_max > info.value_min) {
    transform.scale = static_cast<float>(1 / (info.value_max - info.value_min));
    transform.shift = static_cast<float>((0 - info.value_min) / (info.value_max - info.value_min));
  } else if (options.normalize == "standard") {
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

model::LossKind loss_kind(const TrainOptions& options, const io::DatasetInfo& info) {
  const bool classes = info.labels_are_classes;
  if (options.loss == "softmax-cross-entropy" && !classes) {
    throw UsageError("--loss softmax-cross-entropy needs class labels, and the data holds numbers to predict");
  }
  if (options.loss == "mean-squared-error" && classes) {
    throw UsageError(
        "--loss mean-squared-error needs numbers to predict, and the data holds class labels; pack it with "
        "--regression");
  }
  return classes ? model::LossKind::softmax_cross_entropy : model::LossKind::mean_squared_error;
}

namespace {

/// Samples of [height, width] or [height, width, channels].
std::optional<model::ImageShape> image_shape(const io::Field& x) {
  const std::vector<std::int64_t>& shape = x.sample_shape;
  if (shape.size() == 2) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = 1};
  if (shape.size() == 3) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = shape[2]};
  return std::nullopt;
}

}  // namespace

std::optional<model::Augmentation> augmentation(const TrainOptions& options, const io::DatasetInfo& info) {
  const bool per_image = options.normalize == "per-image";
  if (info.tokens || (options.augment == "none" && !per_image)) return std::nullopt;
  const auto image = image_shape(info.x);
  if (!image) {
    throw UsageError(
        fmt::format("--{} needs images, and the samples have {} extents: pack them as images, or leave it out",
                    per_image ? "normalize per-image" : "augment", info.x.sample_shape.size()));
  }
  model::Augmentation spec = parse_augmentation(options.augment, *image);
  if (spec.minimum_area >= 1 &&
      (spec.out.height > image->height + 2 * spec.pad || spec.out.width > image->width + 2 * spec.pad)) {
    throw UsageError(fmt::format("--augment {}: a crop of {} x {} does not fit images of {} x {}{}", options.augment,
                                 spec.out.height, spec.out.width, image->height, image->width,
                                 spec.pad > 0 ? fmt::format(" with {} zeros around", spec.pad) : ""));
  }
  spec.per_image = per_image;
  const model::InputTransform transform = input_transform(options, info);
  spec.scale.fill(transform.scale);
  spec.shift.fill(transform.shift);
  return spec;
}

model::SampleShape sample_shape(const TrainOptions& options, const io::DatasetInfo& info) {
  if (info.tokens) {
    return {.features = info.x.elements(), .outputs = info.tokens->vocabulary, .image = {}, .tokens = true};
  }
  model::SampleShape shape{.features = info.x.elements(),
                           .outputs = info.labels_are_classes ? info.classes : info.y.elements(),
                           .image = image_shape(info.x)};
  if (const auto spec = augmentation(options, info)) {
    shape.image = spec->out;
    shape.features = spec->out.elements();
  }
  return shape;
}

std::unique_ptr<io::Dataset> open_dataset(const TrainOptions& options, const fs::path& path) {
  const bool wants_tokens = model::network_kind(options.model).tokens;
  if (wants_tokens) {
    io::TokenDatasetOptions tokens{
        .path = path, .context = options.model == "lstm" ? options.unroll : options.context, .seed = options.seed};
    if (options.was_set("x")) tokens.x = options.x;
    return std::make_unique<io::TokenDataset>(tokens);
  }
  if (io::holds_tokens(path)) {
    throw UsageError(fmt::format("{} holds tokens, and --model {} reads samples: give --model gpt or --model lstm",
                                 path.string(), options.model));
  }
  return std::make_unique<io::ShardedDataset>(io::DatasetOptions{.path = path, .x = options.x, .y = options.y});
}

bool takes_streams(const model::Network& network) noexcept { return !network.carried().all().empty(); }

void require_labels(const io::DatasetInfo& info, const fs::path& path) {
  if (!info.y.name.empty()) return;
  throw UsageError(fmt::format("{} has no labels or targets: pack it again with --y FILE (csv: --label-column NAME)",
                               path.string()));
}

std::string network_identity(const model::Network& network) {
  return fmt::format("{} -> {}: {}", network.sample_shape().features, network.sample_shape().outputs,
                     network.signature());
}

model::SampleShape shape_of_identity(const std::string& identity) {
  model::SampleShape shape;
  const char* end = identity.data() + identity.size();
  const auto features = std::from_chars(identity.data(), end, shape.features);
  constexpr std::string_view arrow = " -> ";
  if (features.ec == std::errc{} && std::string_view(features.ptr, end).starts_with(arrow) &&
      std::from_chars(features.ptr + arrow.size(), end, shape.outputs).ec == std::errc{}) {
    return shape;
  }
  throw std::invalid_argument(fmt::format("not a network's identity: {}", identity));
}

WorkPlan work_plan(const TrainOptions& options, std::int64_t samples, int world, bool streams) {
  WorkPlan work;
  const std::int64_t parts = options.accumulate * world;
  const std::int64_t wanted = options.global_batch > 0          ? options.global_batch
                              : options.batch > samples / parts ? samples  // the product may not fit 64 bits
                                                                : options.batch * parts;
  if (streams && wanted > samples) {
    throw UsageError(
        fmt::format("a global batch of {} lanes is wider than the data, which has {} windows: give a smaller "
                    "--batch or --unroll",
                    wanted, samples));
  }
  work.global_batch = std::min(wanted, samples);
  work.epoch_samples = io::epoch_samples(samples, work.global_batch, streams);
  work.most_lanes = divide_up(work.global_batch, world);
  work.largest_part = divide_up(divide_up(work.global_batch, world), options.accumulate);
  work.steps_per_epoch = divide_up(work.epoch_samples, work.global_batch);
  const double steps = std::ceil(options.epochs * static_cast<double>(work.steps_per_epoch));
  if (options.steps <= 0 && steps > kMostSteps) {
    throw UsageError(fmt::format("--epochs {:g} are {:g} steps: more than can be counted", options.epochs, steps));
  }
  work.total_steps = options.steps > 0 ? options.steps : std::max<std::int64_t>(1, std::llround(steps));
  const auto interval = [&](std::int64_t every) { return every > 0 ? every : every == 0 ? work.steps_per_epoch : 0; };
  work.evaluate_every = interval(options.evaluate_every);
  work.checkpoint_every = interval(options.checkpoint_every);
  return work;
}

model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work) {
  model::ScheduleOptions schedule;
  try {
    schedule.kind = model::parse_schedule(options.schedule);
    schedule.base = options.reference_batch > 0
                        ? model::scale_rate(options.learning_rate, work.global_batch, options.reference_batch)
                        : options.learning_rate;
    schedule.final_rate = options.final_learning_rate;
    schedule.decay_rate = options.decay_rate;
    schedule.decay_steps = options.decay_steps;
    schedule.staircase = options.staircase;
    schedule.boundaries = options.boundaries;
    schedule.power = options.power;
    schedule.warmup_steps = options.warmup_steps;
    schedule.total_steps = work.total_steps;
    return model::LearningRateSchedule(schedule);
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
}

Workload prepare_workload(TrainOptions& options, int world) {
  const DataPaths paths = resolve_data_paths(options);
  Workload workload;
  workload.training = open_dataset(options, paths.training);
  const io::DatasetInfo& info = workload.training->info();
  require_labels(info, paths.training);
  if (!paths.validation.empty()) {
    workload.validation = open_dataset(options, paths.validation);
    const io::DatasetInfo& other = workload.validation->info();
    require_labels(other, paths.validation);
    if (info.tokens && info.tokens->texts != other.tokens->texts) {
      throw UsageError(fmt::format("{} was made with another vocabulary than {}: pack it with --vocabulary-from {}",
                                   paths.validation.string(), paths.training.string(), paths.training.string()));
    }
    if (other.x.elements() != info.x.elements() || other.labels_are_classes != info.labels_are_classes ||
        other.classes > info.classes || (!info.labels_are_classes && other.y.elements() != info.y.elements())) {
      throw UsageError(fmt::format(
          "{} does not fit {}: samples of {} numbers and {} against {} numbers and {}; pack both in the same way",
          paths.validation.string(), paths.training.string(), other.x.elements(),
          other.labels_are_classes ? fmt::format("{} classes", other.classes) : "regression targets", info.x.elements(),
          info.labels_are_classes ? fmt::format("{} classes", info.classes) : "regression targets"));
    }
  }
  if (options.target_metric && !workload.validation) {
    throw UsageError("--target-metric needs validation data: name it with --validation");
  }

  workload.model.loss = loss_kind(options, info);
  workload.model.augmentation = augmentation(options, info);
  if (!info.tokens) workload.model.input_transform = input_transform(options, info);
  workload.model.label_smoothing = static_cast<float>(options.label_smoothing);
  workload.model.optimizer = optimizer_options(options);
  try {
    workload.network = model::make_network(network_options(options), sample_shape(options, info));
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
  workload.task.emplace(workload.model.loss, *workload.network, info.tokens ? info.tokens->bytes_per_token : 0);
  workload.work = work_plan(options, info.samples, world, takes_streams(*workload.network));
  workload.model.lanes = workload.work.most_lanes;
  workload.model.sample_type = element_type(workload.training->x_type());
  workload.model.max_batch = std::max(workload.work.largest_part, workload.validation ? options.evaluation_batch : 1);

  // A network's usual warm-up is for runs of usual length.
  if (!options.was_set("warmup-steps")) {
    options.warmup_steps = std::min(options.warmup_steps, workload.work.total_steps / 10);
  }
  options.data = paths.training;
  options.validation = paths.validation;
  options.global_batch = workload.work.global_batch;
  options.loss =
      workload.model.loss == model::LossKind::softmax_cross_entropy ? "softmax-cross-entropy" : "mean-squared-error";
  if (options.normalize != "per-image" && !info.tokens) {
    options.normalize = fmt::format("affine({:.9g},{:.9g})", workload.model.input_transform.scale,
                                    workload.model.input_transform.shift);
  }
  return workload;
}

}  // namespace lockstep::app
