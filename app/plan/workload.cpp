#include "app/plan/workload.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/column_match.hpp"
#include "app/data/data_match.hpp"
#include "app/data/network_input.hpp"
#include "app/data/token_inputs.hpp"
#include "app/options/choices.hpp"
#include "app/plan/network_defaults.hpp"
#include "app/plan/network_losses.hpp"
#include "app/plan/tuning.hpp"
#include "app/report/figures.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/shards/data_description.hpp"
#include "io/text/shell_word.hpp"
#include "io/text/tokenizer.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// Returns the names of the fields in `row`, or the name of `row` if it is a single field.
std::vector<std::string> names_of(std::span<const io::FieldRange> fields, const io::Field& row) {
  std::vector<std::string> names;
  for (const io::FieldRange& range : fields) names.push_back(range.field.name);
  if (names.empty() && !row.name.empty()) names.push_back(row.name);
  return names;
}

/// Gives the network its size for small data, except for options that the user gives. Does nothing if the weights come
/// from another run, because they need the network of that run.
void shrink_network(TrainOptions& options) {
  if (!options.start.from.empty()) return;
  for (const auto& [name, value] : model::network_kind(options.network).small_data) {
    if (!options.was_set(name)) options.network.values.insert_or_assign(name, value);
  }
}

/// Throws UsageError if the scores of all validation samples, summed over ranks, exceed a limit.
void require_room_for_scores(const io::Dataset& validation, std::int64_t outputs) {
  constexpr std::int64_t kMaxScores = std::int64_t{1} << 29;  // 4 GiB
  const std::int64_t samples = validation.info().samples;
  if (samples <= kMaxScores / outputs) return;
  throw UsageError(
      fmt::format("--best-by roc-auc keeps a score for each validation sample and output, {} x {}, and goes "
                  "up to {} of them: give --best-by balanced-accuracy or f1-macro, or less validation data",
                  with_commas(samples), with_commas(outputs), with_commas(kMaxScores)));
}

/// Throws UsageError for options that have no meaning with --window, or none without it.
void require_windows_of_series(const LearningProblem& problem) {
  if (problem.data.window == 0) {
    if (problem.data.y.empty()) {
      throw UsageError(
          "--y \"\" leaves the labels out, and only forecasts of series (--window) are learnt without: name them");
    }
    if (problem.data.horizon != DataOptions{}.horizon)
      throw UsageError("--horizon is for forecasts of series: give --window, too");
    return;
  }
  if (!problem.loss.sample_weight.empty()) {
    throw UsageError("--sample-weight is for samples, and --window makes each of many rows: leave one of them away");
  }
  if (!(problem.data.augment == AugmentOptions{}))
    throw UsageError("--augment is for images, and --window reads series");
}

/// Throws UsageError for options of samples, which have no effect on a corpus of tokens. The configuration of a run
/// holds all options: those with their default values are no mistake.
void require_no_sample_options(const TrainOptions& options, const io::DatasetInfo& info, const fs::path& path) {
  if (!info.tokens) return;
  const DataOptions& data = options.data;
  const DataOptions none;
  const Normalization::Kind scale = data.normalize.kind;
  const std::pair<const char*, bool> all[] = {
      {"x", is_packed_data(path) && data.x != none.x},
      {"y", data.y != none.y},
      {"ignore-label", data.ignore_label.has_value()},
      {"layout", data.layout != none.layout},
      {"normalize", scale != Normalization::Kind::none && scale != Normalization::Kind::automatic},
      {"normalize-targets", data.targets == TargetScale::standard},
      {"augment", !(data.augment == none.augment)}};
  for (const auto& [name, has_effect_on_samples] : all) {
    if (!has_effect_on_samples || !options.is_given(name)) continue;
    throw UsageError(fmt::format("--{} is for samples, and {} holds tokens: leave it out", name, path.string()));
  }
}

/// Throws UsageError if the command line gives --loss and the network file declares the losses. main_loss() checks the
/// loss of a configuration.
void require_no_other_loss(const LearningProblem& problem) {
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(problem.network).losses;
  if (losses.empty() || !problem.is_given("loss")) return;
  throw UsageError(fmt::format("--loss {}: {} names its losses itself: leave --loss out", word_of(problem.loss.kind),
                               losses[0].place.substr(0, losses[0].place.rfind(':'))));
}

/// Throws UsageError for volumes of one plane, which a network would take for images.
void require_planes(const io::DatasetInfo& info, const model::NetworkKind& kind, const fs::path& path) {
  const std::vector<std::int64_t>& shape = info.x.sample_shape;
  if (info.tokens || kind.reads == model::Reads::features || shape.size() != 4 || shape[0] > 1) return;
  throw UsageError(
      fmt::format("{}: samples of {} are volumes of one plane, which a network would take for images: store "
                  "them as {}",
                  path.string(), fmt::join(shape, " x "), fmt::join(shape.begin() + 1, shape.end(), " x ")));
}

/// Wraps the data so that inputs which are tokens are checked when they are read.
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

/// Moves a share of the training samples to the validation data.
void split_training(double share, Workload& workload) {
  const std::shared_ptr<io::Dataset> whole = std::move(workload.training);
  using enum io::SplitDataset::Part;
  workload.training = part_of(whole, share, training);
  workload.validation = part_of(whole, share, validation);
}

/// Rearranges columns and classes of the training data into the order that the network knows.
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

/// Replaces the text of the document token by its number.
void find_document_token(Workload& workload) {
  const auto token = workload.options.network.values.find(model::kDocumentToken);
  if (token == workload.options.network.values.end()) return;
  const auto* const text = std::get_if<std::string>(&token->second);
  if (text == nullptr) return;
  try {
    const std::int64_t number = token_with_text(*text, workload.training->info(), workload.paths.training);
    workload.notes.push_back(fmt::format("documents begin with token {}, {}", number, io::in_quotes(*text)));
    token->second = number;
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--{} {}: {}: give the number of the token that begins each document",
                                 model::kDocumentToken, *text, error.what()));
  }
}

/// Rearranges columns and classes of the validation data into the order of the training data.
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
  TrainOptions& options = workload.options;
  options = given;
  workload.paths = resolve_data_paths(options.data);
  const DataPaths& paths = workload.paths;
  const bool same_labels = known != nullptr && known->fit == KnownData::Fit::required;
  require_windows_of_series(options);
  DataFormat format = data_format(options, same_labels ? &known->description : nullptr);
  format.seed = options.work.seed;
  // If only one of training and validation data is packed, --x and --y apply to the other one.
  DataFormat packed = format;
  if (!paths.validation.empty() && is_packed_data(paths.training) != is_packed_data(paths.validation)) {
    packed.x = "x";
    if (!packed.y.empty()) packed.y = "y";
  }
  const auto format_of_data = [&](const fs::path& path) {
    DataFormat of_data = is_packed_data(path) ? packed : format;
    if (is_packed_data(path))
      of_data.ignored_label = options.data.ignore_label;  // packed data store their ignored label
    if (is_packed_data(path) && !is_packed_data(paths.training)) of_data.layout = io::Layout::channels_last;
    if (workload.training) {
      const io::DatasetInfo& of_training = workload.training->info();
      of_data.inputs = names_of(of_training.inputs, of_training.x);
      of_data.targets = names_of(of_training.targets, of_training.y);
      if (!of_training.field.empty()) of_data.extents = of_training.field.size() + 1;
      // Packed data store their ignored label.
      of_data.ignored_label = is_packed_data(path) ? std::nullopt : workload.training->info().ignored_label;
      of_data.labels =
          workload.training->info().labels_are_classes ? io::LabelMeaning::classes : io::LabelMeaning::numbers;
    }
    return of_data;
  };
  DataFormat weighted = format_of_data(paths.training);
  weighted.weight = options.loss.sample_weight;
  workload.training = open_dataset(weighted, paths.training, deadline, shared);
  require_no_sample_options(options, workload.training->info(), paths.training);
  if (workload.training->info().holds_weights && weighted.weight.empty()) {
    workload.notes.push_back(
        fmt::format("{} holds a weight for each sample, which is not used: --sample-weight {} does",
                    paths.training.string(), io::kWeightName));
  }
  const std::vector<model::DeclaredLoss>& declared = model::network_kind(options.network).losses;
  workload.training = with_class_targets(std::move(workload.training), declared, paths.training);
  if (known != nullptr) match_training(*known, options.data.unknown_categories, workload);
  find_document_token(workload);
  const std::optional<io::TableSchema> columns = workload.training->info().table;
  workload.training = windowed(options.data, std::move(workload.training), paths.training);
  if (same_labels) require_same_fields(known->description, workload.training->info(), paths.training);
  if (known != nullptr) {
    std::ranges::move(compare_units(known->description, workload.training->info(), paths.training),
                      std::back_inserter(workload.warnings));
  }
  if (options.data.validation_share > 0) split_training(options.data.validation_share, workload);
  const io::DatasetInfo& info = workload.training->info();
  require_labels(info, paths.training);
  require_no_other_loss(options);
  workload.model.loss = loss_kind(options.loss, declared, info);
  workload.axes = axes_of_inputs(info, options.network);
  if (std::string note = fit_network_defaults(*workload.training, workload.axes, workload.model.loss, options);
      !note.empty()) {
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
                                   paths.validation.string(), paths.training.string(), io::shell_path(paths.training)));
    }
    require_same_inputs(info.inputs, other.inputs, paths.validation);
    require_same_extents(info.x, other.x, "", paths.validation);
    require_same_targets(io::names_of_numbers(info.targets), other.targets, paths.validation);
    std::ranges::move(compare_units(describe_data(info, options.data), other, paths.validation),
                      std::back_inserter(workload.warnings));
    if (other.x.elements() != info.x.elements() || other.labels_are_classes != info.labels_are_classes ||
        other.classes > info.classes || (!info.labels_are_classes && other.y.elements() != info.y.elements()) ||
        ((info.has_masks() || other.has_masks()) && other.y.sample_shape != info.y.sample_shape) ||
        other.field != info.field ||
        (workload.model.loss == model::LossKind::binary_cross_entropy && !other.targets_are_binary)) {
      const auto learnt = [](const io::DatasetInfo& data) {
        if (data.has_masks()) {
          return fmt::format("masks of [{}] with {}", fmt::join(data.y.sample_shape, ", "),
                             counted(data.classes, "class"));
        }
        if (data.labels_are_classes) return counted(data.classes, "class");
        if (!data.field.empty()) return fields_text(data.field, data.target_count());
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
  workload.model.augmentation = augmentation(options.data, info, workload.axes);
  if (workload.model.augmentation) {
    require_channels_kept(options.data.augment, *workload.model.augmentation, workload.axes[0]);
  }
  if (!info.tokens) workload.model.input_transform = input_transform(options.data.normalize, info);
  workload.model.label_smoothing = static_cast<float>(options.loss.label_smoothing);
  workload.optimizer = options.optimizer;
  const model::SampleShape shape = sample_shape(info, workload.model.augmentation);
  const model::NetworkKind& kind = model::network_kind(options.network);
  try {
    if (info.samples < model::kSmallData) shrink_network(options);
    workload.network = model::make_network(options.network, shape);
  } catch (const std::invalid_argument& e) {
    // Images to predict, stored as bytes, look like masks.
    const bool may_be_numbers = info.has_masks() && info.y.sample_shape.size() >= info.x.sample_shape.size();
    throw UsageError(may_be_numbers ? fmt::format("{}; --loss mean-squared-error takes {} as numbers, not classes",
                                                  e.what(), info.y.name)
                                    : e.what());
  }
  check_tokens(workload);
  apply_tuning(options.tuning, *workload.network);
  const auto bytes_of = [](const std::unique_ptr<io::Dataset>& data) {
    return data && data->info().tokens ? io::predicted_bytes(*data->info().tokens) : 0;
  };
  workload.task.emplace(
      workload.model.loss, *workload.network,
      BytesPerToken{.trained = bytes_of(workload.training), .evaluated = bytes_of(workload.validation)});
  const NetworkLosses losses = losses_for(kind.losses, workload.model.loss, info, *workload.network);
  workload.model.losses = losses.terms;
  workload.task->set_losses(losses.terms, losses.names);
  workload.task->choose(options.validation.best_by);
  if (options.validation.best_by == BestBy::roc_auc) require_room_for_scores(*workload.validation, shape.outputs);
  workload.work = work_plan(options.work, {.samples = info.samples,
                                           .world = world,
                                           .reads_tokens = model::tokens_per_sample(options.network) > 0,
                                           .has_batch = options.was_set("batch") || options.is_from_network("batch"),
                                           .recurrent = is_recurrent(*workload.network) ? &kind : nullptr});
  add_intervals(options.validation, options.run.checkpoint_every, workload.work);
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

io::PrefetcherOptions reading(const Workload& workload, int rank, int world) {
  const bool virtually = workload.work.virtual_ranks > 0;
  const RankShare share = share_of(workload.work, rank, world);
  return {.order = {.seed = workload.options.work.seed, .shuffle = workload.options.data.shuffle, .shard_counts = {}},
          .stateful = is_recurrent(*workload.network),
          .global_batch = workload.work.global_batch,
          .accumulate = virtually ? 1 : workload.work.accumulate,
          .rank = virtually ? static_cast<int>(share.first_virtual_rank) : rank,
          .world = virtually ? static_cast<int>(workload.work.virtual_ranks) : world,
          .parts = virtually ? static_cast<int>(share.micro_steps) : 1,
          .foresees_steps = workload.model.weighted && !workload.network->sample_shape().grid.empty()};
}

}  // namespace lockstep::app
