#include "app/plan/standardization.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "app/data/blurred_numbers.hpp"
#include "app/data/data_match.hpp"
#include "app/data/feature_statistics.hpp"
#include "app/data/network_input.hpp"
#include "app/data/series_padding.hpp"
#include "app/data/token_inputs.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "comm/messages.hpp"
#include "io/datasets/standardized_dataset.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

namespace {

using Kind = Normalization::Kind;

constexpr std::int64_t kMaxFeatures = 65'536;  ///< limited, because a checkpoint stores a scale for each
constexpr double kLarge = 1000;                ///< magnitude of inputs from which plain gradient descent diverges

bool is_plain(model::OptimizerKind kind) {
  using enum model::OptimizerKind;
  return kind == sgd || kind == momentum || kind == nesterov;
}

/// Scales that the options request (x, y), or request if the data need them (x_if_asked, y_if_asked).
struct Wish {
  bool x = false, x_if_asked = false, y = false, y_if_asked = false;
  bool any() const { return x || x_if_asked || y || y_if_asked; }
};

Wish wish_of(const Workload& workload) {
  const DataOptions& data = workload.options.data;
  const io::DatasetInfo& info = workload.training->info();
  const bool few = features_of(workload.axes) <= kMaxFeatures;
  const bool targets = model::is_of_numbers(workload.model.loss);
  const bool changes_light = data.augment.brightness != 0 || data.augment.contrast_low != 1 ||
                             data.augment.contrast_high != 1;  // in the units of the stored numbers
  return {.x = data.normalize.kind == Kind::per_feature,
          .x_if_asked = data.normalize.kind == Kind::automatic && few && !changes_light &&
                        workload.training->x_type() != io::FileType::uint8,
          .y = targets && data.targets == TargetScale::standard,
          .y_if_asked = targets && data.targets == TargetScale::automatic && info.target_count() <= kMaxFeatures};
}

/// Returns a scale for each of several inputs. Bytes are scaled to [0, 1], as with a single input. Other numbers get
/// mean 0 and deviation 1 if their spread or the user requires it. Tokens are not scaled.
io::FeatureScale scale_of_inputs(const Workload& workload, std::span<const io::FeatureSpread> features,
                                 const Wish& wish) {
  if (!wish.x && !wish.x_if_asked) return {};
  const io::DatasetInfo& info = workload.training->info();
  io::FeatureScale scale{.mean = {}, .deviation = {}, .parts = feature_parts(workload.axes)};
  bool is_scaled = false;
  for (std::size_t i = 0; i < info.inputs.size(); ++i) {
    const auto own = features.first(static_cast<std::size_t>(scale.parts[i].features));
    features = features.subspan(own.size());
    const bool tokens = are_tokens(*workload.network, info.inputs[i].first);
    const bool bytes = info.inputs[i].field.type == io::FileType::uint8 && !wish.x && !tokens;
    const bool is_asked = !tokens && (wish.x || io::asks_for_scale(own));
    io::FeatureScale part{.mean = std::vector<double>(own.size(), 0), .deviation = std::vector<double>(own.size(), 1)};
    if (bytes) {
      constexpr double kGreatestByte = 255;
      part.deviation.assign(own.size(), kGreatestByte);
    } else if (is_asked) {
      part = io::scale_of(own, workload.training->x_type());
    }
    is_scaled = is_scaled || bytes || is_asked;
    scale.mean.insert(scale.mean.end(), part.mean.begin(), part.mean.end());
    scale.deviation.insert(scale.deviation.end(), part.deviation.begin(), part.deviation.end());
  }
  return is_scaled ? scale : io::FeatureScale{};
}

/// Returns the targets that a loss for numbers uses: all, unless there are also losses for labels or classes.
std::vector<io::FeatureSpread> of_numbers(std::span<const io::FeatureSpread> targets, const Task& task) {
  std::vector<io::FeatureSpread> numbers;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (task.counts(i)) numbers.push_back(targets[i]);
  }
  return numbers;
}

/// Returns the scale of the targets, without a change of labels and probabilities beside numbers.
io::FeatureScale scale_of_targets(std::span<const io::FeatureSpread> targets, const Task& task, io::FileType type) {
  io::FeatureScale scale = io::scale_of(targets, type);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (task.counts(i)) continue;
    scale.mean[i] = 0;
    scale.deviation[i] = 1;
  }
  return scale;
}

/// Returns the ranges of the inputs that are no tokens, if they are known.
std::vector<ValueRange> ranges_of_numbers(const Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  std::vector<ValueRange> ranges;
  if (workload.network->token_ranges().empty()) {
    ranges.push_back(*workload.range);
  }
  for (const io::FieldRange& input : ranges.empty() ? info.inputs : std::vector<io::FieldRange>{}) {
    if (!input.has_statistics || are_tokens(*workload.network, input.first)) continue;
    ranges.push_back({.least = input.value_min, .greatest = input.value_max});
  }
  return ranges;
}

/// Throws UsageError if the options scale the only input and the network reads it as tokens.
void require_numbers_to_scale(Kind normalize, const Workload& workload) {
  const bool only_tokens = workload.training->info().inputs.empty() && !workload.network->token_ranges().empty();
  if (!only_tokens || normalize == Kind::automatic || normalize == Kind::none || normalize == Kind::affine) return;
  throw UsageError("--normalize scales numbers, and the network reads tokens: leave it out");
}

/// Collective. Warns if inputs are too large for plain gradient descent.
void warn_of_large_inputs(comm::Communicator& communicator, Kind normalize, Workload& workload) {
  if (!is_plain(workload.optimizer.kind) || !workload.features.empty() || normalize == Kind::per_image) return;
  const model::InputTransform& transform = workload.model.input_transform;
  double largest = 0;
  comm::all_succeed(communicator, [&] {
    for (const ValueRange& range : ranges_of_numbers(workload)) {
      for (const double end : {range.least, range.greatest}) {
        largest = std::max(largest, std::abs(transform.scale * end + transform.shift));
      }
    }
  });
  if (largest < kLarge) return;
  workload.warnings.push_back(
      fmt::format("the network's inputs go up to {:.4g}, which --optimizer {} does not bear: --normalize per-feature "
                  "brings them to mean 0 and deviation 1",
                  largest, model::name_of(workload.optimizer.kind)));
}

/// Collective. Warns if the bytes of a table are small: they may be plain numbers, such as 0 and 1, but are divided by
/// 255.
void warn_of_small_bytes(comm::Communicator& communicator, Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  const bool are_scaled = workload.options.data.normalize.kind == Kind::automatic && workload.features.empty() &&
                          info.x.type == io::FileType::uint8 && info.x.sample_shape.size() == 1 &&
                          info.inputs.empty() && workload.network->token_ranges().empty();
  if (!are_scaled) return;
  ValueRange range;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation looking(communicator, "looking at the data");
    range = measured_range(*workload.training);
  });
  communicator.broadcast(std::as_writable_bytes(std::span(&range, 1)), 0);
  communicator.wait();
  constexpr double kSmall = 8;  // inputs up to 0.03
  if (range.greatest > kSmall) return;
  workload.warnings.push_back(fmt::format(
      "the bytes of the samples are {:.0f} to {:.0f}, and --normalize auto divides bytes by 255: --normalize "
      "none keeps them as they are, per-feature brings them to mean 0 and deviation 1",
      range.least, range.greatest));
}

/// Collective. Warns if numbers of the training data differ by less than float64 shows at their size or, where they are
/// not standardised, float32. `found`: statistics of all samples, if they were gathered.
void warn_of_blurred_numbers(comm::Communicator& communicator, const std::optional<FeatureStatistics>& found,
                             Workload& workload) {
  const io::Dataset& data = *workload.training;
  const bool wide_x = data.x_type() == io::FileType::float64, wide_y = data.y_type() == io::FileType::float64;
  if (!wide_x && !wide_y) return;
  const auto told_apart_in = [](const io::FeatureScale& scale) {
    return scale.empty() ? ToldApartIn::float32 : ToldApartIn::float64;
  };
  std::string of_x, of_y;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation looking(communicator, "looking at the data");
    const std::vector<io::FeaturePart> parts = feature_parts(workload.axes);
    const FeatureStatistics statistics = found ? *found : sample_statistics(data, parts);
    const std::filesystem::path& path = workload.paths.training;
    if (wide_x) of_x = blurred_features(statistics, parts, told_apart_in(workload.features), data.info(), path);
    if (wide_y) of_y = blurred_targets(statistics, told_apart_in(workload.targets), data.info(), path);
  });
  for (const std::string& own : {of_x, of_y}) {
    std::string warning = comm::all_gather_text(communicator, own)[0];
    if (!warning.empty()) workload.warnings.push_back(std::move(warning));
  }
}

/// True if the last layer of the network is initialised anew.
bool outputs_are_new(const model::Network& network, const std::vector<std::string>& reinitialize) {
  const std::vector<model::LayerPlan> layers = network.plan();
  const auto last =
      std::find_if(layers.rbegin(), layers.rend(), [](const auto& layer) { return layer.parameters > 0; });
  return last != layers.rend() && std::ranges::any_of(network.parameters().all(), [&](const auto& parameter) {
           return parameter.name.starts_with(last->name + "/") &&
                  std::ranges::any_of(reinitialize, [&](const std::string& pattern) {
                    return ::fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0;
                  });
         });
}

/// Collective. Returns the range of the training samples: the stored one, or that of some samples, which rank 0 reads.
ValueRange range_of_samples(comm::Communicator& communicator, const io::Dataset& data) {
  if (const std::optional<ValueRange> known = known_range(data.info())) return *known;
  ValueRange range;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation looking(communicator, "looking at the data");
    range = measured_range(data);
  });
  communicator.broadcast(std::as_writable_bytes(std::span(&range, 1)), 0);
  communicator.wait();
  return range;
}

/// Collective. Compares the range of the inputs with the data that the weights were trained on, because the inputs keep
/// their meaning.
void compare_with(comm::Communicator& communicator, const io::DataDescription& trained_on, Workload& workload) {
  const std::optional<ValueRange> range = workload.range;
  all_succeed_or_usage(communicator, [&] {
    const io::DatasetInfo& info = workload.training->info();
    std::string warning = compare_ranges(trained_on, info, range, workload.paths.training);
    if (warning.empty()) return;
    const bool one_of_bytes = (trained_on.x.type == io::FileType::uint8) != (info.x.type == io::FileType::uint8);
    if (one_of_bytes && !trained_on.has_range) throw UsageError(warning);
    workload.warnings.push_back(std::move(warning));
  });
}

/// Collective. Compares the ranges of training and validation samples if only one of the two is stored as bytes: one
/// scale applies to both.
void compare_validation(comm::Communicator& communicator, Workload& workload) {
  if (!workload.validation) return;
  const io::DatasetInfo &training = workload.training->info(), &validation = workload.validation->info();
  const bool bytes = training.x.type == io::FileType::uint8;
  if (bytes == (validation.x.type == io::FileType::uint8)) return;
  const ValueRange before = workload.range ? *workload.range : range_of_samples(communicator, *workload.training);
  const ValueRange now = range_of_samples(communicator, *workload.validation);
  all_succeed_or_usage(communicator, [&] {
    io::DataDescription description = describe_data(training, workload.options.data);
    description.has_range = true;
    description.value_min = before.least;
    description.value_max = before.greatest;
    std::string warning = compare_ranges(description, validation, now, workload.paths.validation,
                                         "one scale serves both, so pack or store both in the same units");
    if (!warning.empty()) workload.warnings.push_back(std::move(warning));
  });
}

std::unique_ptr<io::Dataset> standardized(std::unique_ptr<io::Dataset> data, const Workload& workload) {
  if (!data) return data;
  return std::make_unique<io::StandardizedDataset>(std::move(data), workload.features, workload.targets);
}

/// Applies --normalize standard, range and affine before the conversion to float32 if float32 cannot distinguish the
/// stored numbers.
void scale_in_double(const Normalization& normalize, Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  if (workload.model.augmentation) return;
  io::FeatureScale scale;
  if (normalize.kind == Kind::affine && normalize.affine.scale > 0) {
    scale = {.mean = {-static_cast<double>(normalize.affine.shift) / normalize.affine.scale},
             .deviation = {1 / static_cast<double>(normalize.affine.scale)}};
  } else if (normalize.kind == Kind::standard && info.standard_deviation > 0) {
    scale = {.mean = {info.mean}, .deviation = {info.standard_deviation}};
  } else if (normalize.kind == Kind::range && info.value_max > info.value_min) {
    scale = {.mean = {info.value_min}, .deviation = {info.value_max - info.value_min}};
  }
  if (!scale.needs_double()) return;
  workload.features = scale;
  workload.model.input_transform = {};
}

/// Throws UsageError if the stored scales do not fit the inputs and targets: a resumed run keeps its scales.
void require_same_sizes(const KnownScales& known, const Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  const bool has_targets = !info.labels_are_classes;
  const bool fits = (known.features.empty() || known.features.fits(info.x.elements())) &&
                    (known.targets.empty() || (has_targets && known.targets.fits(info.y.elements())));
  if (fits) return;
  throw UsageError(
      fmt::format("{}: samples of {} and {} are not those that the run was trained on: give the same --data, --x and "
                  "--y, or start a "
                  "new run",
                  workload.paths.training.string(), counted(info.x.elements(), "number"),
                  has_targets ? counted(info.y.elements(), "target") : counted(info.classes, "class")));
}

}  // namespace

KnownScales known_scales(const io::TrainingRecord* record, const io::TrainingRecord* weights,
                         const Workload& workload) {
  const GivenOptions& given = workload.options;
  const io::TrainingRecord* const source = record != nullptr ? record : weights;
  KnownScales known{.decided = record != nullptr};
  if (source == nullptr || source->data_description.empty()) return known;
  io::DataDescription description = io::data_description_from_json(source->data_description);
  known.features = description.features;
  known.targets = description.targets;
  if (record != nullptr) {
    require_same_sizes(known, workload);
    return known;
  }
  const io::DatasetInfo& info = workload.training->info();
  const bool new_outputs = outputs_are_new(*workload.network, workload.options.start.reinitialize) ||
                           std::ssize(known.targets.mean) != (known.targets.empty() ? 0 : info.target_count());
  known.new_targets = new_outputs && !given.is_given("normalize-targets");
  const bool same_numbers = description.x.elements() == info.x.elements() && known.features.fits(info.x.elements());
  if (given.is_given("normalize") || (!same_numbers && std::ssize(known.features.mean) != features_of(workload.axes))) {
    known.features = {};
  }
  if (given.is_given("normalize-targets") || new_outputs) known.targets = {};
  if (!given.is_given("normalize") && given.was_set("normalize")) known.trained_on = std::move(description);
  return known;
}

void standardize(comm::Communicator& communicator, const KnownScales& known, Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  if (info.tokens) return;
  const Normalization& normalize = workload.options.data.normalize;
  require_numbers_to_scale(normalize.kind, workload);
  // Ids of tokens are no quantities.
  if (workload.network->token_ranges().empty()) workload.range = range_of_samples(communicator, *workload.training);
  Wish wish = wish_of(workload);
  if (info.inputs.empty() && !workload.network->token_ranges().empty()) wish.x = wish.x_if_asked = false;
  const io::FileType x_type = workload.training->x_type();
  if (const std::int64_t features = features_of(workload.axes); wish.x && features > kMaxFeatures) {
    throw UsageError(
        fmt::format("--normalize per-feature goes up to {} features, and the samples have {}: give "
                    "--normalize standard",
                    with_commas(kMaxFeatures), with_commas(features)));
  }
  if (known.trained_on) compare_with(communicator, *known.trained_on, workload);
  compare_validation(communicator, workload);
  if (known.decided) wish.x_if_asked = wish.y_if_asked = false;  // a resumed run keeps its first decision
  if (known.new_targets) {
    wish.y_if_asked = workload.model.loss == model::LossKind::mean_squared_error && info.target_count() <= kMaxFeatures;
    wish.y = false;
  }
  if (wish.x) workload.features = known.features;
  if (wish.y) workload.targets = known.targets;
  wish.x = wish.x && workload.features.empty();
  wish.y = wish.y && workload.targets.empty();
  std::optional<FeatureStatistics> found;
  if (wish.any()) {
    found = gather_statistics(communicator, *workload.training, feature_parts(workload.axes),
                              padded_inputs(*workload.network, info));
    if (!info.inputs.empty()) {
      workload.features = scale_of_inputs(workload, found->x, wish);
    } else if (wish.x || (wish.x_if_asked && io::asks_for_scale(found->x))) {
      workload.features = io::scale_of(found->x, x_type);
    }
    if (wish.y || (wish.y_if_asked && io::ask_for_scale_as_targets(of_numbers(found->y, *workload.task)))) {
      workload.targets = scale_of_targets(found->y, *workload.task, workload.training->y_type());
    }
  }
  if (x_type == io::FileType::float64 && workload.features.empty()) scale_in_double(normalize, workload);
  if (!known.decided) warn_of_blurred_numbers(communicator, found, workload);
  warn_of_large_inputs(communicator, normalize.kind, workload);
  if (!known.decided) warn_of_small_bytes(communicator, workload);
  const bool narrowed = workload.training->y_type() == io::FileType::float64;
  if (workload.features.empty() && workload.targets.empty() && !narrowed) return;
  workload.training = standardized(std::move(workload.training), workload);
  workload.validation = standardized(std::move(workload.validation), workload);
  workload.model.sample_type = widest_sample_type(workload);
  workload.task->set_target_scale(workload.targets);
}

}  // namespace lockstep::app
