#include "app/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "app/agree/combinations.hpp"
#include "app/data/data_contents.hpp"
#include "app/data/data_match.hpp"
#include "app/data/network_input.hpp"
#include "app/data/shared_samples.hpp"
#include "app/data/target_check.hpp"
#include "app/options/choices.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "app/plan/sampling.hpp"
#include "app/plan/standardization.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "comm/consensus.hpp"
#include "comm/device_communicator.hpp"
#include "io/files/file_error.hpp"
#include "model/graph/graph.hpp"

namespace lockstep::app {

namespace {

/// Returns the options with decisions in place of automatic values: the configuration that gives the same workload.
TrainOptions decided_settings(const Workload& workload, const comm::Communicator& communicator) {
  const TrainOptions& options = workload.options;
  TrainOptions settings = options;
  if (options.execution.all_reduce.measured)
    settings.execution.all_reduce = {.limits = communicator.all_reduce_limits()};
  settings.agree.replay.clear();  // belongs to this process: a resumed run continues without it
  // The default warm-up of a network is too long for short runs.
  if (!options.was_set("warmup-steps")) {
    settings.schedule.warmup_steps = std::min(options.schedule.warmup_steps, workload.work.total_steps / 10);
  }
  if (workload.training == nullptr) return settings;  // a benchmark, whose samples are in no file
  settings.data.path = workload.paths.training;
  settings.data.validation = workload.paths.validation;
  if (workload.training->info().tokens && !is_packed_data(workload.paths.training)) {
    settings.data.x = data_format(options).x;
  }
  settings.work.global_batch = workload.work.global_batch;
  if (options.work.steps <= 0) settings.work.epochs = workload.work.epochs;
  settings.work.virtual_ranks = workload.work.virtual_ranks;
  settings.loss.kind = workload.model.loss;
  using Kind = Normalization::Kind;
  if (!workload.features.empty()) {
    settings.data.normalize = {.kind = Kind::per_feature};
  } else if (options.data.normalize.kind != Kind::per_image && !workload.training->info().tokens) {
    settings.data.normalize = {.kind = Kind::affine, .affine = workload.model.input_transform};
  }
  settings.data.targets = workload.targets.empty() ? TargetScale::none : TargetScale::standard;
  return settings;
}

io::NetworkIdentity identity_of(const model::NetworkKind& kind, const model::Network& network) {
  const model::SampleShape& shape = network.sample_shape();
  io::NetworkIdentity identity{.kind = kind.name,
                               .signature = network.signature(),
                               .features = shape.features,
                               .outputs = shape.outputs,
                               .tokens = shape.tokens};
  if (!shape.image) return identity;
  const model::ImageShape& image = *shape.image;
  if (image.depth == 1) {
    identity.image = {image.height, image.width, image.channels};
  } else if (kind.reads == model::Reads::any) {
    identity.image = {image.height, image.width, image.channels, image.depth};
  }
  return identity;
}

io::TrainingRecord record_of(const TrainOptions& settings, const Workload& workload, int ranks) {
  io::TrainingRecord record{.seed = settings.work.seed,
                            .world_size = settings.work.reproducible ? 0 : ranks,
                            .network = identity_of(model::network_kind(settings.network), *workload.network),
                            .optimizer = std::string(model::name_of(workload.optimizer.kind)),
                            .dataset = {},
                            .configuration = stored_configuration(settings),
                            .program_version = program_version(),
                            .metrics = {},
                            .network_text = model::network_kind(settings.network).file.empty()
                                                ? ""
                                                : model::network_kind(settings.network).text};
  if (workload.training == nullptr) return record;
  record.dataset = workload.training->fingerprint();
  io::DataDescription description = describe_data(workload.training->info(), settings.data);
  if (workload.range) {
    description.has_range = true;
    description.value_min = workload.range->least;
    description.value_max = workload.range->greatest;
  }
  description.features = workload.features;
  description.targets = workload.targets;
  store_constant(workload.constant, description);
  description.contents = workload.training->contents();
  record.data_description = io::to_json(description);
  if (const auto& tokens = workload.training->info().tokens) record.vocabulary = io::to_json(*tokens);
  return record;
}

}  // namespace

model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work,
                                                   const model::ScheduleClock& clock) {
  model::ScheduleOptions schedule = options.schedule;
  try {
    if (options.work.reference_batch > 0) {
      schedule.base = model::scale_rate(schedule.base, work.global_batch, options.work.reference_batch);
    }
    schedule.total_steps = std::llround(clock.after(work.total_steps));
    schedule.clock = clock;
    return model::LearningRateSchedule(schedule);
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
}

namespace {

/// Returns the clock of the schedule. If the length of the run is given in epochs, the schedule counts samples: a step
/// with twice the samples advances it twice as far. If the length is given in steps, the schedule counts steps.
model::ScheduleClock clock_from(const Standing& from, const Workload& workload) {
  const double per_step = [&] {
    if (workload.work.given_steps > 0) return 1.0;
    if (from.global_batch <= 0 || from.global_batch == workload.work.global_batch) return from.clock.per_step;
    const std::int64_t before =
        steps_per_epoch(workload.training->info().samples, from.global_batch, is_recurrent(*workload.network));
    return from.clock.per_step * static_cast<double>(before) / static_cast<double>(workload.work.steps_per_epoch);
  }();
  if (per_step == from.clock.per_step) return from.clock;
  return {.step = from.step, .at = from.clock.after(from.step), .per_step = per_step};
}

/// Throws UsageError.
Standing standing_at(const Origin& origin) {
  Standing standing = origin.standing;
  if (standing.step > 0) {
    standing.global_batch = train_options_of(*origin.record).work.global_batch;
  }
  return standing;
}

}  // namespace

void begin_at(Plan& plan, const Origin& origin) {
  const Standing from = standing_at(origin);
  go_on_at(plan.workload.work, from.step, from.cursor);
  plan.clock = clock_from(from, plan.workload);
  plan.schedule = learning_rate_schedule(plan.settings, plan.workload.work, plan.clock);
}

std::vector<model::Slice> owned_ranges(const Plan& plan, int rank) {
  std::vector<model::Slice> owned;
  if (!plan.shards_optimizer) return owned;
  const StepGroup group = plan.agreement->group_of(rank);
  for (const comm::Slice& bucket : plan.buckets) {
    const comm::Slice part = comm::slice_of(bucket.count, rank - group.first, group.size);
    owned.push_back({.offset = bucket.offset + part.offset, .count = part.count});
  }
  return owned;
}

model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch) {
  const model::Network& network = *plan.workload.network;
  model::ModelOptions options = plan.workload.model;
  options.max_batch = batch;
  model::MemoryPlan memory = model::plan_memory(
      network, options,
      {.optimizer = plan.workload.optimizer, .owned = owned_ranges(plan, plan.agreement->roles().owner_of_most)},
      memory_types(plan.place));
  if (plan.place.gpu) {
    memory.communication = comm::device_communicator_bytes(
        communicator.size(),
        device_communicator_options(plan.place, plan.settings.execution, nullptr, plan.tree ? &*plan.tree : nullptr));
  }
  plan.agreement->add_memory(plan, communicator, options, memory);
  if (plan.tree) {
    memory.gradients +=
        static_cast<std::size_t>(plan.tree->most_kept()) * network.parameters().updated_elements() * sizeof(float);
  }
  if (!plan.place.gpu && comm::keeps_errors(communicator.wire_format())) {
    memory.gradients += network.parameters().updated_elements() * sizeof(float);  // rounding errors kept for feedback
  }
  return memory;
}

namespace {

/// Refuses a batch normalisation that sees one value per channel in all batches: it would only pass its shift on.
void require_batches_to_normalize(const Workload& workload, int ranks) {
  if (workload.work.largest_part > 1) return;
  const std::vector<model::Parameter>& parameters = workload.network->parameters().all();
  model::ParameterTable table;
  model::ActivationTable state;
  const model::Graph graph = workload.network->plain_graph(table, state);
  for (const model::Node& node : graph.nodes()) {
    if (node.call.kind != "batch-norm" || graph.values()[node.inputs[0]].type.shape.places() > 1) continue;
    const auto scale = std::ranges::find(parameters, node.name + "/scale", &model::Parameter::name);
    const bool has_more_ranks = node.synchronizes && ranks > 1;
    if (has_more_ranks || scale == parameters.end() || scale->frozen) continue;
    throw UsageError(
        fmt::format("{} normalises over the batch, and each batch of a rank is one sample (global batch {}), with one "
                    "value per channel: give a larger --batch or --global-batch, a smaller --accumulate, or "
                    "`norm: layer` in the network's file",
                    node.name, workload.work.global_batch));
  }
}

}  // namespace

Plan complete_plan(const comm::Communicator& communicator, Workload workload, const Place& place,
                   std::shared_ptr<const Agreement> agreement, const Standing& from) {
  const TrainOptions& options = workload.options;
  const ExecutionOptions& execution = options.execution;
  if (communicator.transport() == comm::Transport::mpi && !place.gpu && execution.wire != comm::WireFormat::fp32) {
    throw UsageError(fmt::format("--transport mpi sums in full: take one of --transport mpi and --wire {}",
                                 word_of(execution.wire)));
  }
  if (execution.shard_optimizer && place.gpu && execution.wire != comm::WireFormat::fp32) {
    throw UsageError(
        "--shard-optimizer on GPUs goes with --wire fp32 only: take one of --shard-optimizer and --wire bf16");
  }
  const int ranks = communicator.size();
  if (!agreement) agreement = make_agreement(options.agree, ranks);
  require_combination({.agree = options.agree,
                       .execution = execution,
                       .run = options.run,
                       .optimizer = workload.optimizer,
                       .reproducible = options.work.reproducible,
                       .servers = agreement->roles().servers,
                       .gpus = place.gpu.has_value(),
                       .synchronizes = workload.network->synchronizes(),
                       .has_losses = !workload.model.losses.empty(),
                       .counts_labels = workload.model.weighted && !workload.network->sample_shape().grid.empty()});
  require_batches_to_normalize(workload, ranks);
  const bool shards = execution.shard_optimizer && ranks > 1;
  const std::int64_t writers = options.run.checkpoint_writers;
  model::ScheduleClock clock;
  if (from.step > 0) {
    go_on_at(workload.work, from.step, from.cursor);
    clock = clock_from(from, workload);
  }
  std::filesystem::path replay = options.agree.replay;
  TrainOptions settings = decided_settings(workload, communicator);
  model::LearningRateSchedule schedule = learning_rate_schedule(settings, workload.work, clock);
  const comm::BucketRule rule = bucket_rule(execution.bucket_size, place, communicator);
  std::vector<comm::Slice> buckets = rule.cut(workload.network->parameters().slice_ends());
  io::TrainingRecord record = record_of(settings, workload, ranks);
  Plan plan{.settings = std::move(settings),
            .workload = std::move(workload),
            .place = place,
            .clock = clock,
            .schedule = std::move(schedule),
            .bucket_rule = rule,
            .buckets = std::move(buckets),
            .shards_optimizer = shards,
            .checkpoint_writers = writers > 0 ? static_cast<int>(std::min<std::int64_t>(writers, ranks))
                                  : shards && !agreement->roles().groups ? ranks
                                                                         : 1,
            .tree = {},
            .agreement = std::move(agreement),
            .replay = std::move(replay),
            .memory = {},
            .record = std::move(record)};
  if (const std::int64_t parts = plan.workload.work.virtual_ranks; parts > 0) {
    plan.tree.emplace(static_cast<int>(parts), ranks);
  }
  plan.memory = memory_with(plan, communicator, plan.workload.model.max_batch);
  return plan;
}

namespace {

/// Throws io::FileError if data with which a run began are not where they were.
void require_data_of_run(const DataPaths& paths) {
  for (const auto& [path, option] :
       {std::pair(&paths.training, "--data"), std::pair(&paths.validation, "--validation")}) {
    std::error_code unknown;
    if (path->empty() || std::filesystem::exists(*path, unknown)) continue;
    throw io::FileError(
        fmt::format("{} is not there, and the run began with it: put it back, or name its new place "
                    "with {}",
                    path->string(), option));
  }
}

}  // namespace

void inspect_job_data(comm::Communicator& communicator, const TrainOptions& options) {
  all_succeed_or_usage(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation inspecting(communicator, "inspecting the data");
    const DataPaths paths = resolve_data_paths(options.data);
    const DataFormat format = data_format(options);
    if (options.run.resume.from != Resume::From::nothing) require_data_of_run(paths);
    inspect_data(format, paths.training);
    if (!paths.validation.empty()) inspect_data(format, paths.validation);
  });
}

namespace {

/// Throws UsageError if the initial weights, or their document token, belong to another vocabulary than the data.
/// Returns a warning if nobody can tell.
std::string compare_tokens(const io::TrainingRecord& initial, const TrainOptions& options,
                           const std::optional<io::TokenInfo>& tokens, const std::filesystem::path& path) {
  if (!tokens) return "";
  const io::TokenInfo before = io::token_info_from_json(initial.vocabulary);
  if (io::same_vocabulary(before, *tokens)) return "";
  const std::string warning = options.start.reinitialize.empty() ? compare_vocabularies(before, *tokens, path) : "";
  const std::string name(model::kDocumentToken);
  const auto token = options.network.values.find(name);
  if (token == options.network.values.end() || options.is_given(name)) return warning;
  throw UsageError(
      fmt::format("{} was made with another vocabulary than the data of the initial weights, whose document token "
                  "is {}: give --{} the token of these data",
                  path.string(), model::to_text(token->second), name));
}

}  // namespace

Workload open_workload(comm::Communicator& communicator, const TrainOptions& options, io::IoDeadline* deadline,
                       const Origin& origin) {
  inspect_job_data(communicator, options);
  Workload workload;
  const int world = make_agreement(options.agree, communicator.size())->roles().training_ranks;
  DataPaths paths;
  all_succeed_or_usage(communicator, [&] { paths = resolve_data_paths(options.data); });
  const SharedData shared = open_together(communicator, std::array{paths.training, paths.validation}, deadline);
  const io::TrainingRecord* const resumed = origin.record ? &*origin.record : nullptr;
  const io::TrainingRecord* const initial = origin.weights ? &*origin.weights : nullptr;
  const io::TrainingRecord* const source = resumed != nullptr ? resumed : initial;
  all_succeed_or_usage(communicator, [&] {
    std::optional<KnownData> known;
    if (source != nullptr && !source->data_description.empty()) {
      known = KnownData{.description = io::data_description_from_json(source->data_description)};
      if (resumed == nullptr && !options.start.reinitialize.empty()) known->fit = KnownData::Fit::wanted;
    }
    std::string warning;
    if (initial != nullptr && !initial->vocabulary.empty()) {
      const auto training = open_dataset(data_format(options), paths.training, deadline, shared);
      warning = compare_tokens(*initial, options, training->info().tokens, paths.training);
    }
    workload = prepare_workload(options, world, deadline, shared, known ? &*known : nullptr);
    if (!warning.empty()) workload.warnings.push_back(std::move(warning));
  });
  // Different data on some rank could have another number of features, which later collectives rely on.
  comm::require_equal(communicator,
                      std::vector<comm::FingerprintItem>{
                          {"training data", workload.training->fingerprint()},
                          {"validation data", workload.validation ? workload.validation->fingerprint() : ""}});
  workload.training = with_contents(communicator, std::move(workload.training));
  if (workload.validation) workload.validation = with_contents(communicator, std::move(workload.validation));
  if (!workload.paths.validation.empty()) {
    const std::string same = shared_files(*workload.training, *workload.validation);
    if (!same.empty()) {
      workload.warnings.push_back(same +
                                  ": a validation of samples that a network has learnt says nothing about "
                                  "others; --validation names other data");
    }
  }
  standardize(communicator, known_scales(resumed, initial, workload), workload);
  workload.weights = gather_loss_weights(communicator, workload.options.loss, *workload.training);
  workload.model.weighted = !workload.weights.empty() || may_lack_classes(workload.training->info(), workload.model);
  apply_sampling(communicator, workload);
  return workload;
}

Place choose_place(comm::Communicator& communicator, const TrainOptions& options) {
  return options.dry_run ? plan_place(communicator, options.execution) : find_place(communicator, options.execution);
}

TrainOptions options_of_start(const TrainOptions& options, const Origin& origin) {
  const auto stored = [](const io::TrainingRecord& record) {
    return StoredRun{.configuration = record.configuration, .network = record.network_text};
  };
  if (origin.record) return going_on(options, stored(*origin.record));
  const bool knows = origin.weights && !origin.weights->configuration.empty();
  return knows ? with_network_of(options, stored(*origin.weights)) : options;
}

Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const Origin& origin) {
  TrainOptions begun = options;
  Standing from;
  all_succeed_or_usage(communicator, [&] {
    begun = options_of_start(options, origin);
    from = standing_at(origin);
  });
  begun.run.folder = origin.folder;
  begun.run.force = options.run.force || origin.takes_folder_over;
  std::shared_ptr<const Agreement> agreement = make_agreement(communicator, begun.agree);
  Workload workload = open_workload(communicator, begun, origin.deadline, origin);
  all_succeed_or_usage(communicator, [&] {
    if (!origin.record) return;
    workload.constant = known_constant(*origin.record, *workload.training, workload.targets, workload.model.loss);
  });
  require_targets(communicator, workload.model, *workload.training, workload.paths.training);
  if (workload.validation) {
    require_targets(communicator, workload.model, *workload.validation, workload.paths.validation);
  }
  if (workload.constant.empty()) {
    workload.constant = find_constant(communicator, *workload.training, workload.model.loss);
  }
  if (workload.validation) {
    workload.constant_score =
        score_of(communicator, workload.constant, *workload.validation, workload.model.loss, *workload.task);
  }
  const Place place = choose_place(communicator, begun);
  return complete_plan(communicator, std::move(workload), place, std::move(agreement), from);
}

}  // namespace lockstep::app
