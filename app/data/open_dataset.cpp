#include "app/data/open_dataset.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/datasets/window_dataset.hpp"
#include "io/foreign_files.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

io::LabelMeaning label_meaning(const LearningProblem& problem, const io::DataDescription* before) {
  using enum io::LabelMeaning;
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(problem.network).losses;
  if (!losses.empty()) return model::takes_classes(losses[0].kind) ? classes : numbers;
  if (problem.loss.kind) return model::takes_classes(*problem.loss.kind) ? classes : numbers;
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

/// Returns the names of the inputs that the network reads, in its order; empty if they are unknown.
std::vector<std::string> wanted_inputs(const LearningProblem& problem, const io::DataDescription* before) {
  std::vector<std::string> names;
  if (before != nullptr) {
    for (const io::Field& input : before->inputs) names.push_back(input.name);
    if (names.empty() && before->x.name != DataOptions{}.x) names.push_back(before->x.name);
  }
  // "x" means all inputs of shards, unless the user gives --x x.
  if (names.empty() && problem.data.x == DataOptions{}.x && problem.is_given("x")) names.push_back(problem.data.x);
  if (!names.empty()) return names;
  for (const model::SampleInput& input : model::inputs_of(problem.network)) names.push_back(input.name);
  if (names.empty() && before != nullptr && !before->x.name.empty()) names.push_back(before->x.name);
  return names;
}

/// Returns the largest number of extents that the network file declares for an input; 0: it declares none.
std::size_t extents_read(const model::NetworkOptions& network) {
  std::size_t extents = 0;
  for (const model::SampleInput& input : model::inputs_of(network)) extents = std::max(extents, input.extents.size());
  return extents;
}

/// Returns the HDF5 datasets to read from files of other programs. Several inputs are in the datasets that the network
/// names, unless the user names others.
std::string x_of_files(const DataFormat& format) {
  return format.x == DataOptions{}.x && format.inputs.size() > 1 ? fmt::format("{}", fmt::join(format.inputs, ","))
                                                                 : format.x;
}

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

DataFormat data_format(const LearningProblem& problem, const io::DataDescription* before) {
  DataFormat format{.network = model::network_kind(problem.network).name,
                    .context = model::tokens_per_sample(problem.network),
                    .x = problem.data.x,
                    .y = problem.data.y,
                    .inputs = wanted_inputs(problem, before),
                    .gaps = {.accept_unwritten = problem.data.allow_fill},
                    .shift_windows = problem.data.shift_windows,
                    .is_windowed = problem.data.window > 0,
                    .layout = problem.data.layout,
                    .labels = label_meaning(problem, before),
                    .extents = extents_read(problem.network),
                    .ignored_label = problem.data.ignore_label};
  // A field keeps its channels, whatever --layout said of other files.
  if (before != nullptr && !before->field.empty()) format.extents = before->field.size() + 1;
  // "y" means all targets of shards, unless the user names a target y, or did so when the run began.
  const bool is_one =
      before == nullptr ? problem.is_given("y") : before->labels == io::Labels::targets && before->target_names.empty();
  if (problem.data.y == DataOptions{}.y && is_one) format.targets = {problem.data.y};
  for (const model::DeclaredLoss& loss : model::network_kind(problem.network).losses) {
    if (!format.ignored_label) format.ignored_label = loss.ignored;
  }
  if (format.context > 0 && format.is_windowed) {
    throw UsageError(fmt::format("--window is for series of numbers, and --model {} reads tokens", format.network));
  }
  if (format.is_windowed) {
    format.labels = io::LabelMeaning::numbers;
    if (problem.data.y == DataOptions{}.y) format.unlabelled = io::Unlabelled::accepted;
  }
  if (format.context > 0) {
    format.y.clear();
    // The name may be the default that a checkpoint stored: the user did not give it.
    if (!problem.is_given("x") && problem.data.x == DataOptions{}.x) format.x = io::kTokensName;
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
                         .extents = format.extents,
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

void require_labels(const io::DatasetInfo& info, const fs::path& path) {
  if (!info.y.name.empty()) return;
  throw UsageError(fmt::format("{} has no labels or targets: pack it again with --y FILE (csv: --label-column NAME)",
                               path.string()));
}

}  // namespace lockstep::app
