#include "app/evaluate/trained_model.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/column_match.hpp"
#include "app/data/data_match.hpp"
#include "app/data/network_input.hpp"
#include "app/data/open_dataset.hpp"
#include "app/data/target_check.hpp"
#include "app/data/token_inputs.hpp"
#include "app/data/verify_data.hpp"
#include "app/engine/engine.hpp"
#include "app/options/moved_path.hpp"
#include "app/place/placement.hpp"
#include "app/plan/common_result.hpp"
#include "app/plan/host_memory.hpp"
#include "app/plan/network_losses.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "comm/consensus.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/datasets/standardized_dataset.hpp"
#include "io/files/file_error.hpp"
#include "io/image_dataset.hpp"
#include "io/shards/shard_file.hpp"
#include "io/text/shell_word.hpp"

namespace lockstep::app {

namespace {

/// Sets the fields of packed data that the run chose.
void find_fields(const DataOptions& chosen, const std::optional<io::DataDescription>& known, DataFormat& format) {
  const bool one_input = !known || known->inputs.empty();
  if (chosen.x != DataOptions{}.x && one_input) format.inputs = io::short_names(io::names_in(chosen.x));
  if (chosen.y != DataOptions{}.y) format.targets = io::short_names(io::names_in(chosen.y));
}

/// The format of the network's input.
DataFormat format_of(const LearningProblem& trained, const io::TrainingRecord& record,
                     const TrainedModelOptions& request, TrainedModel::Labels labels) {
  std::optional<io::DataDescription> known;
  if (!record.data_description.empty()) known = io::data_description_from_json(record.data_description);
  DataFormat format = data_format(trained, known ? &*known : nullptr);
  if (format.context == 0) {
    const bool packed = is_packed_data(trained.data.validation);
    if (packed) find_fields(trained.data, known, format);
    const std::string& all_targets = trained.data.y.empty() ? trained.data.y : DataOptions{}.y;
    if (packed || !request.x.empty()) format.x = request.x.empty() ? DataOptions{}.x : request.x;
    if (packed || !request.y.empty()) format.y = request.y.empty() ? all_targets : request.y;
    if (request.x == DataOptions{}.x) format.inputs = {request.x};
    if (request.y == DataOptions{}.y) format.targets = {request.y};
    if (!format.ignored_label && known) format.ignored_label = known->ignored_label;
    if (packed) format.ignored_label.reset();  // packed data store their own
  } else if (!request.x.empty()) {
    format.x = request.x;
  }
  // Shards store channels last. The run's --layout described the files that it was trained on.
  if (is_packed_data(trained.data.validation) && !is_packed_data(inference_options_of(record).data.path)) {
    format.layout = io::Layout::channels_last;
  }
  format.gaps.accept_unwritten = format.gaps.accept_unwritten || request.allow_fill;
  if (labels == TrainedModel::Labels::as_they_come) {
    format.unlabelled = request.y.empty() ? io::Unlabelled::accepted : io::Unlabelled::refused;
  }
  return format;
}

/// Throws UsageError for options of samples, which have no effect on a corpus of tokens.
void require_no_sample_options(const TrainedModelOptions& request, const std::filesystem::path& path) {
  const bool scales = request.normalize && request.normalize->kind != Normalization::Kind::none;
  const char* const option = !request.x.empty() && is_packed_data(path) ? "x"
                             : !request.y.empty()                       ? "y"
                             : scales                                   ? "normalize"
                                                                        : nullptr;
  if (option == nullptr) return;
  throw UsageError(fmt::format("--{} is for samples, and {} holds tokens: leave it out", option, path.string()));
}

/// The loss of the run, for data without labels.
model::LossKind trained_loss(const LearningProblem& trained, const io::TrainingRecord& record, bool has_classes) {
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(trained.network).losses;
  if (!losses.empty()) return main_loss(losses, trained.loss.kind);
  if (trained.loss.kind) return *trained.loss.kind;
  return has_classes || record.network.tokens ? model::LossKind::softmax_cross_entropy
                                              : model::LossKind::mean_squared_error;
}

}  // namespace

TrainedModel::TrainedModel(comm::Communicator& communicator, Console& console, const TrainedModelOptions& request,
                           Labels labels, const ExecutionOptions& execution, io::IoDeadline& deadline)
    : source_(communicator, request.checkpoint, &deadline),  // all ranks get network and data from its record
      labels_(labels),
      trained_(inference_options_of(source_.record())),
      average_(request.average.value_or(trained_.validation.average)) {
  if (request.normalize) trained_.data.normalize = *request.normalize;
  if (request.batch > 0) trained_.validation.batch = request.batch;
  for (const std::string& warning : source_.warnings()) console.warn(warning);
  find_data(communicator, request);
  open_data(communicator, request, deadline);
  for (const std::string& note : notes_) console.info(note);
  for (const std::string& warning : warnings_) console.warn(warning);
  for (const std::string& warning : gather_said(communicator, join_lines(dataset_->warnings()))) console.warn(warning);
  verify_data(communicator, console, request.verify, std::array<const io::Dataset*, 1>{dataset_.get()});
  load(communicator, console, execution);
}

TrainedModel::~TrainedModel() = default;

/// Finds the data of a run whose folder has moved together with the data.
void TrainedModel::follow_run(const std::filesystem::path& checkpoint) {
  std::error_code unknown;
  std::filesystem::path run = std::filesystem::absolute(checkpoint);
  if (!std::filesystem::is_directory(run, unknown)) run = run.parent_path();
  if (!run.has_filename()) run = run.parent_path();
  if (run.filename() == "checkpoints") run = run.parent_path();
  for (std::filesystem::path* const path : {&trained_.data.path, &trained_.data.validation}) {
    const std::filesystem::path there = moved_along(*path, trained_.run, run);
    if (there == *path) continue;
    notes_.push_back(
        fmt::format("{} is not there: {} has moved with the run, and is taken", path->string(), there.string()));
    *path = there;
  }
}

/// Throws io::FileError if the data of the run are not where they were.
void TrainedModel::require_data_of_run() const {
  std::error_code unknown;
  if (data().empty() || std::filesystem::exists(data(), unknown)) return;
  if (!is_part()) {
    throw io::FileError(
        fmt::format("{} is not there, and the run validated on it: put it back, or name its new place "
                    "with --data",
                    data().string()));
  }
  throw io::FileError(
      fmt::format("{} is not there, of which the run put {:g} % aside for validation: put it back, or link it to its "
                  "new place (ln -s NEW {}). --data takes all samples of a file, those that the run has learnt, too",
                  data().string(), 100 * trained_.data.validation_share, io::shell_path(data())));
}

void TrainedModel::find_data(comm::Communicator& communicator, const TrainedModelOptions& request) {
  all_succeed_or_usage(communicator, [&] {
    if (request.data.empty()) {
      follow_run(request.checkpoint.path);
    } else {
      trained_.data.path = request.data;
      trained_.data.validation.clear();
      trained_.data.validation_share = 0;
      const DataPaths found = resolve_data_paths(trained_.data);
      trained_.data.validation = found.validation.empty() ? found.training : found.validation;
    }
    if (trained_.data.validation_share > 0) trained_.data.validation = trained_.data.path;
    if (data().empty()) throw UsageError("the run had no validation data: name the data with --data");
    if (average_ && trained_.optimizer.average_decay == 0) {
      throw UsageError("--average: the run kept no average of its weights (its --average-decay was 0)");
    }
    if (request.data.empty()) require_data_of_run();
    if (communicator.rank() != 0 || takes_images()) return;
    const comm::LongOperation inspecting(communicator, "inspecting the data");
    inspect_data(format_of(trained_, source_.record(), request, labels_), data());
  });
}

/// Predictions need no labels, and images need no packing.
bool TrainedModel::takes_images() const { return labels_ == Labels::as_they_come && io::is_image_folder(data()); }

std::unique_ptr<io::Dataset> TrainedModel::open_images() const {
  const io::TrainingRecord& record = source_.record();
  if (record.data_description.empty()) {
    throw UsageError(
        fmt::format("{} holds images, and {} does not say what data it was trained on: pack the images first",
                    data().string(), source_.file().string()));
  }
  return std::make_unique<io::ImageDataset>(data(), io::data_description_from_json(record.data_description).x);
}

void TrainedModel::open_data(comm::Communicator& communicator, const TrainedModelOptions& request,
                             io::IoDeadline& deadline) {
  const std::string of_classes = broadcast_text(communicator, source_.metric_key() == "accuracy" ? "classes" : "");
  const SharedData shared = open_together(communicator, std::array{data()}, &deadline);
  all_succeed_or_usage(communicator, [&] {
    std::unique_ptr<io::Dataset> opened =
        takes_images()
            ? open_images()
            : open_dataset(format_of(trained_, source_.record(), request, labels_), data(), &deadline, shared);
    if (opened->info().tokens) require_no_sample_options(request, data());
    opened = with_class_targets(std::move(opened), model::network_kind(trained_.network).losses, data());
    match_data(request, opened);
    if (const double share = trained_.data.validation_share; share > 0) {
      const std::int64_t all = opened->info().samples;
      opened = part_of(std::move(opened), share, io::SplitDataset::Part::validation);
      if (!opened->info().windows) part_.emplace(all, opened->info().samples);
    }
    dataset_ = std::move(opened);
    const io::NetworkIdentity& trained_on = source_.record().network;
    const io::DatasetInfo& info = dataset_->info();
    const bool labels = !info.y.name.empty();
    if (labels_ == Labels::required) require_labels(info, data());
    const model::LossKind loss = labels ? loss_kind(trained_.loss, model::network_kind(trained_.network).losses, info)
                                        : trained_loss(trained_, source_.record(), !of_classes.empty());
    const std::optional<model::Augmentation> spec =
        augmentation(trained_.data, info, axes_of_inputs(info, trained_.network));
    model::SampleShape shape = sample_shape(info, spec);
    const bool outputs_fit =
        !labels || (info.labels_are_classes && !shape.tokens ? shape.outputs <= trained_on.outputs
                                                             : shape.outputs == trained_on.outputs);
    if (shape.features != trained_on.features || !outputs_fit) {
      throw UsageError(fmt::format("{} does not fit the network: samples of {} and {} against {} and {}",
                                   data().string(), counted(shape.features, "number"), counted(shape.outputs, "output"),
                                   trained_on.features, trained_on.outputs));
    }
    shape.outputs = trained_on.outputs;
    require_same_positions(info, labels);
    const bool knows_field = trained_on_ && !trained_on_->field.empty();
    if (knows_field) shape.grid = trained_on_->field;
    shape.is_field = shape.is_field || knows_field;
    shape.takes_grid_of_output = !labels;
    field_shape_ = knows_field      ? trained_on_->target_shape
                   : shape.is_field ? info.y.sample_shape
                                    : std::vector<std::int64_t>{};
    try {
      network_ = model::make_network(trained_.network, shape);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{} does not fit the network: {}", data().string(), error.what()));
    }
    if (std::vector<io::TokenNumbers> tokens = tokens_of(*network_, info, data()); !tokens.empty()) {
      dataset_ = std::make_shared<io::CheckedTokensDataset>(dataset_, std::move(tokens), data());
    }
    model_options_ = {.loss = loss,
                      .augmentation = spec,
                      .max_batch = std::min(trained_.validation.batch, info.samples),
                      .sample_type = element_type(dataset_->x_type())};
    model_options_.weighted = may_lack_classes(info, model_options_);
    if (!shape.tokens) model_options_.input_transform = input_transform(trained_.data.normalize, info);
    task_.emplace(loss, *network_, BytesPerToken{.evaluated = info.tokens ? io::predicted_bytes(*info.tokens) : 0});
    const std::vector<model::DeclaredLoss>& declared = model::network_kind(trained_.network).losses;
    const NetworkLosses losses =
        losses_for(declared, loss, labels ? info : with_targets(info, target_names(), declared), *network_);
    model_options_.losses = losses.terms;
    task_->set_losses(losses.terms, losses.names);
    task_->choose(trained_.validation.best_by);
  });
  comm::require_equal(communicator, std::vector<comm::FingerprintItem>{{"program", program_version()},
                                                                       {"data", dataset_->fingerprint()}});
  compare_values(communicator, request);
  all_succeed_or_usage(communicator, [&] { standardize(); });
  if (!dataset_->info().y.name.empty()) require_targets(communicator, model_options_, *dataset_, data());
}

/// Compares the data with the checkpoint's description of the training data. Classes get the numbers that they had in
/// training.
void TrainedModel::match_data(const TrainedModelOptions& request, std::unique_ptr<io::Dataset>& opened) {
  const io::TrainingRecord& record = source_.record();
  if (opened->info().tokens) {
    if (record.vocabulary.empty()) return;
    std::string warning =
        compare_vocabularies(io::token_info_from_json(record.vocabulary), *opened->info().tokens, data());
    if (!warning.empty()) warnings_.push_back(std::move(warning));
    return;
  }
  if (!record.data_description.empty()) trained_on_ = io::data_description_from_json(record.data_description);
  const auto make_windows = [&] {
    require_past_targets(opened->info());
    opened = windowed(trained_.data, std::move(opened), data(), labels_ == Labels::as_they_come);
  };
  if (!trained_on_) {
    notes_.push_back(fmt::format(
        "{} does not say what data it was trained on: whether classes and values mean the same here cannot be compared",
        source_.file().string()));
    return make_windows();
  }
  const ColumnMatch columns = match_columns(trained_on_->table, opened->info(), data(), request.unknown_categories);
  notes_.insert(notes_.end(), columns.notes.begin(), columns.notes.end());
  warnings_.insert(warnings_.end(), columns.warnings.begin(), columns.warnings.end());
  opened = arranged(std::move(opened), trained_on_->table, columns);
  make_windows();
  const io::DatasetInfo& info = opened->info();
  require_same_samples(*trained_on_, info, data());
  std::ranges::move(compare_units(*trained_on_, info, data()), std::back_inserter(warnings_));
  if (info.y.name.empty() || !info.labels_are_classes || trained_on_->labels != io::Labels::classes) return;
  ClassMatch match = match_classes(trained_on_->class_names, record.network.outputs, info, data());
  if (!match.note.empty()) notes_.push_back(match.note);
  if (!match.warning.empty()) warnings_.push_back(match.warning);
  opened = relabelled(std::move(opened), match, trained_on_->class_names, record.network.outputs);
}

/// Requires targets if the network's windows contain past targets beside the other numbers of a step.
void TrainedModel::require_past_targets(const io::DatasetInfo& rows) const {
  if (trained_.data.window == 0 || !trained_on_ || !rows.y.name.empty() || rows.x.sample_shape.size() > 1) return;
  const std::int64_t seen = trained_on_->x.elements() / trained_.data.window;
  if (seen <= rows.x.elements()) return;
  throw UsageError(
      fmt::format("{}: has no targets, and the network sees the past ones beside the other numbers of a step, {} in "
                  "all instead of {}: --y names them",
                  data().string(), seen, rows.x.elements()));
}

/// Requires the kind of labels of training: masks or fields of the same extents, or one label or row for each sample.
void TrainedModel::require_same_positions(const io::DatasetInfo& info, bool has_labels) const {
  if (!has_labels || !trained_on_) return;
  const std::vector<std::int64_t> mask_here = info.has_masks() ? info.y.sample_shape : std::vector<std::int64_t>{};
  if (mask_here == trained_on_->mask && info.field == trained_on_->field) return;
  const auto text = [](const std::vector<std::int64_t>& mask, const std::vector<std::int64_t>& field, bool classes) {
    return !mask.empty()    ? fmt::format("masks of [{}]", fmt::join(mask, ", "))
           : !field.empty() ? fmt::format("fields of [{}]", fmt::join(field, ", "))
           : classes        ? std::string("one label for each sample")
                            : std::string("a row of numbers for each sample");
  };
  throw UsageError(
      fmt::format("{} does not fit the network: it holds {}, and the network was trained on {}", data().string(),
                  text(mask_here, info.field, info.labels_are_classes),
                  text(trained_on_->mask, trained_on_->field, trained_on_->labels == io::Labels::classes)));
}

/// Standardises as the run did, with the numbers in its checkpoint. `request` may replace the normalisation of x.
void TrainedModel::standardize() {
  io::FeatureScale features;
  if (trained_on_ && trained_.data.normalize.kind == Normalization::Kind::per_feature) features = trained_on_->features;
  if (trained_on_) targets_ = trained_on_->targets;
  const bool has_labels = !dataset_->info().y.name.empty();
  if (trained_on_) constant_ = stored_constant(*trained_on_, model_options_.loss);
  const std::shared_ptr<io::Dataset> stored = dataset_;
  if (!features.empty() || stored->y_type() == io::FileType::float64) {
    dataset_ = std::make_shared<io::StandardizedDataset>(stored, features, io::FeatureScale{});
  }
  as_learnt_ = dataset_;
  if (!targets_.empty() && has_labels) {
    as_learnt_ = std::make_shared<io::StandardizedDataset>(stored, features, targets_);
  }
  model_options_.sample_type = element_type(dataset_->x_type());
  task_->set_target_scale(targets_);
}

/// Collective. Compares the range of values with that of the training data. If the data do not state their range, rank
/// 0 reads a sample of them.
void TrainedModel::compare_values(comm::Communicator& communicator, const TrainedModelOptions& request) {
  if (!trained_on_ || request.normalize || dataset_->info().tokens) return;
  std::optional<ValueRange> range = known_range(dataset_->info());
  if (!range && trained_on_->has_range) {
    range.emplace();
    comm::all_succeed(communicator, [&] {
      if (communicator.rank() != 0) return;
      const comm::LongOperation looking(communicator, "looking at the data");
      range = measured_range(*dataset_);
    });
    communicator.broadcast(std::as_writable_bytes(std::span(&*range, 1)), 0);
    communicator.wait();
  }
  all_succeed_or_usage(communicator, [&] {
    std::string warning = compare_ranges(*trained_on_, dataset_->info(), range, data());
    if (!warning.empty()) warnings_.push_back(std::move(warning));
  });
}

void TrainedModel::load(comm::Communicator& communicator, Console& console, const ExecutionOptions& execution) {
  const Place place = find_place(communicator, execution);
  precision_ = place.precision;
  const model::ParameterStateOptions state_options{.optimizer = trained_.optimizer,
                                                   .purpose = model::Purpose::evaluation};
  const auto plan_for = [&](std::int64_t batch) {
    model::ModelOptions with = model_options_;
    with.max_batch = batch;
    return model::plan_memory(*network_, with, state_options, memory_types(place));
  };
  const std::int64_t batch = model_options_.max_batch;
  require_host_memory(communicator, evaluation_memory(place, plan_for(batch), *dataset_, batch));
  require_gpu_memory(communicator, place, plan_for(batch), batch, plan_for);
  if (!place.note.empty()) console.info(place.note);
  backend_ = make_agreed_backend(communicator, place, execution);
  comm::all_succeed(communicator, [&] {
    parameters_.emplace(*backend_, network_->parameters(), state_options);
    model_.emplace(*backend_, *network_, *parameters_, model_options_);
  });
  source_.restore(*parameters_);
  finite_ = finite_weights(*parameters_, network_->parameters(), average_);
  if (!finite_.all()) console.warn(fmt::format("{}: {}", source_.file().string(), finite_.text()));
}

std::vector<std::string> TrainedModel::target_names() const {
  std::vector<std::string> names = trained_on_ ? trained_on_->target_names : std::vector<std::string>{};
  const std::optional<io::TableSchema>& table = dataset_->info().table;
  if (names.empty() && table && !dataset_->info().windows) names = table->labels;
  return std::ssize(names) == source_.record().network.outputs ? names : std::vector<std::string>{};
}

std::string TrainedModel::description() const {
  return fmt::format("{} (step {}{}{})", source_.file().string(), source_.record().step,
                     source_.is_best() ? ", the best of its run" : "", average_ ? ", averaged weights" : "");
}

}  // namespace lockstep::app
