#include "app/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "app/options/choices.hpp"
#include "app/options/options.hpp"
#include "app/plan/agreement.hpp"
#include "app/plan/configuration.hpp"
#include "app/plan/data_match.hpp"
#include "app/plan/sampling.hpp"
#include "app/plan/standardization.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "comm/device_communicator.hpp"
#include "comm/messages.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::app {

namespace {

/// The options with what was decided in the place of what is automatic: the configuration that gives the same workload.
TrainOptions decided_settings(const TrainOptions& options, const Workload& workload,
                              const comm::Communicator& communicator) {
  TrainOptions settings = options;
  if (options.execution.all_reduce.measured)
    settings.execution.all_reduce = {.limits = communicator.all_reduce_limits()};
  settings.agree.replay.clear();  // belongs to this process: a resumed run continues without it
  // A network's usual warm-up suits runs of usual length.
  if (!options.was_set("warmup-steps")) {
    settings.schedule.warmup_steps = std::min(options.schedule.warmup_steps, workload.work.total_steps / 10);
  }
  if (workload.training == nullptr) return settings;  // samples of a benchmark, which are in no file
  settings.network = workload.network_options;
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

/// Throws UsageError where the bits would depend on the number of ranks.
void require_reproducible(const TrainOptions& options, const model::Network& network, const Place& place) {
  const auto refuse = [](const char* with, const char* why) {
    throw UsageError(fmt::format("--reproducible does not go with {}: {}", with, why));
  };
  if (place.gpu && options.execution.tune) refuse("--tune", "each rank would choose the algorithms of its products");
  if (options.execution.shard_optimizer) {
    refuse("--shard-optimizer", "each rank would sum the squares of its own part for the gradient norm");
  }
  if (options.execution.wire != comm::WireFormat::fp32)
    refuse(fmt::format("--wire {}", word_of(options.execution.wire)).c_str(), "each rank would round its own sums");
  if (network.synchronizes()) refuse("--sync-batch-norm", "batch statistics are those of a virtual rank");
}

/// Throws UsageError where servers cannot keep the parameters.
void require_servers(const TrainOptions& options, const Place& place, const model::Network& network,
                     const Workload& workload, const Servers& servers) {
  const char* const mode = options.agree.quorum > 0 ? "--agree quorum" : "--agree async";
  const auto refuse = [&](const std::string& with, const char* why) {
    throw UsageError(fmt::format("{} does not go with {}: {}", mode, with, why));
  };
  if (options.agree.islands > 0) refuse("--islands", "that is for --agree local");
  if (options.agree.after > 0) refuse("--agree-after", "that is for --agree local");
  if (options.agree.outer != model::OuterOptimizerOptions{}) refuse("--outer-optimizer", "that is for --agree local");
  if (options.agree.fragments > 1) refuse("--fragments", "that is for --agree local");
  if (options.agree.delay > 0) refuse("--delay", "that is for --agree local");
  if (place.gpu) refuse("GPUs yet", "give --device cpu");
  if (options.execution.shard_optimizer) refuse("--shard-optimizer", "the servers keep the optimiser in parts already");
  if (options.run.roll_back > 0 && !options.agree.replay.empty()) {
    refuse("--roll-back beside --replay", "the record knows of no way back");
  }
  if (options.work.reproducible) refuse("--reproducible", "gradients are added as they come");
  if (options.execution.wire != comm::WireFormat::fp32)
    refuse(fmt::format("--wire {}", word_of(options.execution.wire)), "gradients travel in full");
  if (options.run.checkpoint_writers > 1) refuse("--checkpoint-writers", "rank 0 brings together what servers keep");
  if (network.synchronizes()) refuse("--sync-batch-norm", "ranks are in different steps");
  const model::OptimizerKind kind = workload.optimizer.kind;
  if (servers.count > 1 && (kind == model::OptimizerKind::lars || kind == model::OptimizerKind::lamb)) {
    refuse(fmt::format("--optimizer {} on {} servers", model::name_of(kind), servers.count),
           "it looks at whole parameters: give --servers 1");
  }
}

/// Throws UsageError if islands cannot train by themselves.
void require_local_steps(const TrainOptions& options, const Place& place, int ranks) {
  const auto refuse = [](const char* with, const char* why) {
    throw UsageError(fmt::format("--agree local does not go with {}: {}", with, why));
  };
  if (options.agree.islands > ranks) {
    throw UsageError(
        fmt::format("--islands {} of {}: every island needs a rank", options.agree.islands, counted(ranks, "rank")));
  }
  const AgreeOptions& agree = options.agree;
  if (agree.fragments > agree.local_steps) {
    throw UsageError(fmt::format("--fragments {} of --agree local={}: each needs a step of its own to end its turn",
                                 agree.fragments, agree.local_steps));
  }
  if (agree.delay >= agree.local_steps / agree.fragments) {
    throw UsageError(
        fmt::format("--delay {} of --agree local={} --fragments {}: it must be below {}, the steps of a turn",
                    agree.delay, agree.local_steps, agree.fragments, agree.local_steps / agree.fragments));
  }
  if (place.gpu) refuse("GPUs yet", "give --device cpu");
  if (options.execution.shard_optimizer && agree.after > 0) {
    refuse("--shard-optimizer and --agree-after",
           "first all ranks would share the update, and then those of an island");
  }
  if (options.work.reproducible) refuse("--reproducible", "the islands' number changes the result");
  if (options.optimizer.average_decay > 0) refuse("--average-decay", "the average would be of one island's weights");
  if (options.run.checkpoint_writers > 1) refuse("--checkpoint-writers", "rank 0 brings together what islands keep");
}

/// Collective. The ranks of a host are an island, unless the user gives the number of islands.
Islands find_islands(comm::Communicator& communicator, const AgreeOptions& options) {
  if (options.islands > communicator.size()) return Islands::equal(1, communicator.size());  // refused later
  const std::vector<std::string> hosts = comm::all_gather_text(communicator, comm::host_name());
  std::vector<int> first;
  std::set<std::string> seen;
  bool neighbours = true;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank > 0 && hosts[rank] == hosts[rank - 1]) continue;
    neighbours = seen.insert(hosts[rank]).second && neighbours;
    first.push_back(static_cast<int>(rank));
  }
  const bool by_host = neighbours && (options.islands == 0 || options.islands == std::ssize(first));
  if (by_host) return {std::move(first), communicator.size()};
  if (options.islands == 0) {
    throw UsageError(
        "the ranks of a host are no neighbours: let the launcher place them by slots (mpirun --map-by slot, srun "
        "--distribution=block), or give --islands");
  }
  return Islands::equal(static_cast<int>(options.islands), communicator.size());
}

io::NetworkIdentity identity_of(const std::string& kind, const model::Network& network) {
  const model::SampleShape& shape = network.sample_shape();
  io::NetworkIdentity identity{.kind = kind,
                               .signature = network.signature(),
                               .features = shape.features,
                               .outputs = shape.outputs,
                               .tokens = shape.tokens};
  if (shape.image) identity.image = {shape.image->height, shape.image->width, shape.image->channels};
  return identity;
}

io::TrainingRecord record_of(const TrainOptions& settings, const Workload& workload, int ranks) {
  io::TrainingRecord record{.seed = workload.seed,
                            .world_size = settings.work.reproducible ? 0 : ranks,
                            .network = identity_of(settings.network.name, *workload.network),
                            .optimizer = std::string(model::name_of(workload.optimizer.kind)),
                            .dataset = {},
                            .configuration = stored_configuration(settings),
                            .program_version = program_version(),
                            .metrics = {}};
  if (workload.training == nullptr) return record;
  record.dataset = workload.training->fingerprint();
  io::DataDescription description = describe_data(workload.training->info(), settings);
  description.features = workload.features;
  description.targets = workload.targets;
  store_constant(workload.constant, description);
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

/// Epochs count samples, and so does the schedule of a run whose length is given in epochs: a step with twice the
/// samples advances it twice as far. With a length given in steps, the schedule counts steps.
model::ScheduleClock clock_from(const Standing& from, const TrainOptions& options, const Workload& workload) {
  const double per_step = [&] {
    if (options.work.steps > 0) return 1.0;
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
    standing.global_batch = train_options_from_ini(origin.record->configuration).work.global_batch;
  }
  return standing;
}

}  // namespace

void begin_at(Plan& plan, const Origin& origin) {
  const Standing from = standing_at(origin);
  go_on_at(plan.workload.work, plan.settings, from.step, from.place);
  plan.clock = clock_from(from, plan.settings, plan.workload);
  plan.schedule = learning_rate_schedule(plan.settings, plan.workload.work, plan.clock);
}

std::vector<model::Slice> owned_ranges(const Plan& plan, int rank, int ranks) {
  std::vector<model::Slice> owned;
  if (!plan.shards_optimizer) return owned;
  if (plan.islands) {  // every island has the whole state
    const int island = plan.islands->of(rank), first = plan.islands->first_rank(island);
    rank -= first;
    ranks = plan.islands->end_rank(island) - first;
  }
  for (const comm::Slice& bucket : plan.buckets) {
    const comm::Slice part = comm::slice_of(bucket.count, rank, ranks);
    owned.push_back({.offset = bucket.offset + part.offset, .count = part.count});
  }
  return owned;
}

std::optional<Servers> find_servers(const TrainOptions& options, int ranks) {
  const AgreeOptions& agree = options.agree;
  if (!agree.uses_servers()) {
    if (!agree.replay.empty()) throw UsageError("--replay has an effect only with --agree quorum=RANKS or async");
    if (agree.servers != ServerChoice{})
      throw UsageError("--servers has an effect only with --agree quorum=RANKS or async");
    return std::nullopt;
  }
  const bool beside = !agree.servers.shared && agree.servers.count == 0 && agree.quorum > 0;  // a server on rank 0
  const bool shared = agree.servers.shared || beside;
  const int dedicated = shared ? 0 : std::max(1, agree.servers.count);
  if (dedicated >= ranks) {
    throw UsageError(fmt::format("{} of {} leave nobody to train: start {} or more, or give --servers shared",
                                 dedicated == 1 ? "1 server" : fmt::format("{} servers", dedicated),
                                 counted(ranks, "rank"), counted(dedicated + 1, "rank")));
  }
  const Servers servers{.workers = ranks - dedicated,
                        .count = beside   ? 1
                                 : shared ? ranks
                                          : dedicated,
                        .shared = shared};
  if (agree.quorum > servers.workers) {
    throw UsageError(fmt::format("--agree quorum={} of {}: there are never so many gradients of a step", agree.quorum,
                                 counted(servers.workers, shared ? "rank" : "worker")));
  }
  return servers;
}

comm::Slice served_part(const Servers& servers, std::size_t elements, int server) {
  return comm::slice_of(elements, server, servers.count);
}

int training_ranks(const Plan& plan, int ranks) { return plan.servers ? plan.servers->workers : ranks; }

/// The last rank that shares the update, in the smallest island.
int rank_that_owns_most(const Plan& plan, int ranks) {
  if (!plan.islands) return ranks - 1;
  const Islands& islands = *plan.islands;
  int smallest = 0;
  const auto size = [&](int island) { return islands.end_rank(island) - islands.first_rank(island); };
  for (int island = 1; island < islands.count(); ++island) {
    if (size(island) < size(smallest)) smallest = island;
  }
  return islands.end_rank(smallest) - 1;
}

model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch) {
  const model::Network& network = *plan.workload.network;
  const int ranks = communicator.size();
  model::ModelOptions options = plan.workload.model;
  options.max_batch = batch;
  model::MemoryPlan memory = model::plan_memory(
      network, options,
      {.optimizer = plan.workload.optimizer, .owned = owned_ranges(plan, rank_that_owns_most(plan, ranks), ranks)},
      memory_types(plan.place));
  if (plan.place.gpu) {
    memory.communication = comm::device_communicator_bytes(
        ranks,
        device_communicator_options(plan.place, plan.settings.execution, nullptr, plan.tree ? &*plan.tree : nullptr));
  }
  if (plan.settings.agree.local_steps > 0) {
    const std::size_t arena = network.parameters().updated_elements() * sizeof(float);
    const std::size_t velocity = model::has_velocity(plan.settings.agree.outer) ? arena : 0;
    const std::size_t of_an_island =
        model::plan_memory(network, options, {.optimizer = plan.workload.optimizer}, memory_types(plan.place))
            .optimizer;
    memory.snapshot +=
        velocity + of_an_island * static_cast<std::size_t>(std::max<std::int64_t>(0, plan.settings.agree.islands - 1));
    memory.optimizer += 2 * arena + velocity;  // the anchor, and the differences from it
    if (plan.settings.agree.streams()) {
      memory.snapshot += arena * static_cast<std::size_t>(std::max<std::int64_t>(1, plan.settings.agree.islands));
      memory.optimizer +=
          plan.settings.agree.delay > 0 ? 2 * arena : arena;  // the island's weights and those in transit
    }
  }
  if (plan.servers) {
    // A server beside the training: its own arenas, and a message per worker; sums need a copy.
    const Servers& servers = *plan.servers;
    const std::size_t arena = network.parameters().arena_elements() * sizeof(float);
    const std::size_t part =
        served_part(servers, network.parameters().arena_elements(), servers.count - 1).count * sizeof(float);
    memory.optimizer += 3 * arena + (servers.count == 1 ? memory.optimizer : memory.optimizer / servers.count + part) +
                        4 * part * static_cast<std::size_t>(servers.workers) +
                        2 * arena;  // sent and received by a worker
    if (communicator.uses_network()) memory.optimizer += std::min(arena, comm::SurvivorCommunicator::kMaxCopied);
  }
  if (plan.tree) {
    memory.gradients +=
        static_cast<std::size_t>(plan.tree->most_kept()) * network.parameters().updated_elements() * sizeof(float);
  }
  if (!plan.place.gpu && comm::keeps_errors(communicator.wire_format())) {
    memory.gradients += network.parameters().updated_elements() * sizeof(float);  // rounding errors kept for feedback
  }
  return memory;
}

Plan complete_plan(const comm::Communicator& communicator, const TrainOptions& given, Workload workload,
                   const Place& place, std::optional<Islands> islands, const Standing& from) {
  const TrainOptions options = workload.options.value_or(given);
  const ExecutionOptions& execution = options.execution;
  if (communicator.transport() == comm::Transport::mpi && !place.gpu && execution.wire != comm::WireFormat::fp32) {
    throw UsageError(fmt::format("--transport mpi sums in full: take one of --transport mpi and --wire {}",
                                 word_of(execution.wire)));
  }
  if (execution.shard_optimizer && place.gpu && execution.wire != comm::WireFormat::fp32) {
    throw UsageError(
        "--shard-optimizer on GPUs goes with --wire fp32 only: take one of --shard-optimizer and --wire bf16");
  }
  if (options.work.reproducible) require_reproducible(options, *workload.network, place);
  const int ranks = communicator.size();
  if (options.agree.local_steps > 0) require_local_steps(options, place, ranks);
  const std::optional<Servers> servers = find_servers(options, ranks);
  if (servers) require_servers(options, place, *workload.network, workload, *servers);
  const bool shards = execution.shard_optimizer && ranks > 1;
  const std::int64_t writers = options.run.checkpoint_writers;
  model::ScheduleClock clock;
  if (from.step > 0) {
    go_on_at(workload.work, options, from.step, from.place);
    clock = clock_from(from, options, workload);
  }
  TrainOptions settings = decided_settings(options, workload, communicator);
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
            .checkpoint_writers = writers > 0          ? static_cast<int>(std::min<std::int64_t>(writers, ranks))
                                  : shards && !islands ? ranks
                                                       : 1,
            .tree = {},
            .islands = std::move(islands),
            .servers = servers,
            .replay = options.agree.replay,
            .memory = {},
            .record = std::move(record)};
  if (const std::int64_t parts = plan.workload.work.virtual_ranks; parts > 0) {
    plan.tree.emplace(static_cast<int>(parts), ranks);
  }
  plan.memory = memory_with(plan, communicator, plan.workload.model.max_batch);
  return plan;
}

void inspect_job_data(comm::Communicator& communicator, const TrainOptions& options) {
  all_succeed_or_usage(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation inspecting(communicator, "inspecting the data");
    const DataPaths paths = resolve_data_paths(options.data);
    const DataFormat format = data_format(options);
    inspect_data(format, paths.training);
    if (!paths.validation.empty()) inspect_data(format, paths.validation);
  });
}

Workload open_workload(comm::Communicator& communicator, const TrainOptions& options, io::IoDeadline* deadline,
                       const Origin& origin) {
  inspect_job_data(communicator, options);
  Workload workload;
  const std::optional<Servers> servers = find_servers(options, communicator.size());
  const int world = servers ? servers->workers : communicator.size();
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
    workload = prepare_workload(options, world, deadline, shared, known ? &*known : nullptr);
  });
  standardize(communicator, *workload.options, known_scales(options, resumed, initial, workload), workload);
  workload.weights = gather_loss_weights(communicator, options.loss, *workload.training);
  workload.model.weighted = !workload.weights.empty();
  workload.training = sampled(communicator, *workload.options, *workload.network, std::move(workload.training));
  return workload;
}

Place choose_place(comm::Communicator& communicator, const TrainOptions& options) {
  return options.dry_run ? plan_place(communicator, options.execution) : find_place(communicator, options.execution);
}

Islands Islands::equal(int count, int ranks) {
  std::vector<int> first;
  for (int island = 0; island < count; ++island) first.push_back(island * ranks / count);
  return {std::move(first), ranks};
}

int Islands::of(int rank) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), rank) - first_.begin()) - 1;
}

TrainOptions options_of_start(const TrainOptions& options, const Origin& origin) {
  if (origin.record) return going_on(options, origin.record->configuration);
  const bool knows = origin.weights && !origin.weights->configuration.empty();
  return knows ? with_network_of(options, origin.weights->configuration) : options;
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
  std::optional<Islands> islands;
  if (begun.agree.local_steps > 0) {
    islands = find_islands(communicator, begun.agree);
    if (begun.agree.islands == 0) begun.agree.islands = islands->count();
  }
  Workload workload = open_workload(communicator, begun, origin.deadline, origin);
  all_succeed_or_usage(communicator, [&] {
    if (!origin.record) return;
    workload.constant = known_constant(*origin.record, *workload.training, workload.targets, workload.model.loss);
  });
  if (workload.constant.empty()) {
    workload.constant = find_constant(communicator, *workload.training, workload.model.loss);
  }
  if (workload.validation) {
    workload.constant_score =
        score_of(communicator, workload.constant, *workload.validation, workload.model.loss, *workload.task);
  }
  const Place place = choose_place(communicator, begun);
  return complete_plan(communicator, begun, std::move(workload), place, std::move(islands), from);
}

}  // namespace lockstep::app
