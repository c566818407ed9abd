#include "app/check/check.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/check/check_facts.hpp"
#include "app/check/check_network.hpp"
#include "app/check/check_ranks.hpp"
#include "app/check/check_report.hpp"
#include "app/check/check_storage.hpp"
#include "app/data/shared_samples.hpp"
#include "app/data/verify_data.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/snapshot.hpp"
#include "app/engine/trainer.hpp"
#include "app/options/usage_error.hpp"
#include "app/place/placement.hpp"
#include "app/plan/common_result.hpp"
#include "app/plan/fingerprint.hpp"
#include "app/plan/host_memory.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "app/report/record_file.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/survey/network_probe.hpp"
#include "comm/survey/topology.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

namespace {

constexpr std::uint64_t kFilesBesidesData = 128;  ///< files of libraries, logs and the launcher
constexpr std::size_t kMaxRowsOfHosts = 32;
constexpr double kSecondsOfReading = 10;  ///< limit of the time in which a rank reads samples

/// Runs one check. All ranks have the same facts and reach the same conclusions; rank 0 reports. All ranks must call
/// every method.
class Check {
 public:
  Check(comm::MpiSession& session, comm::Communicator& communicator, Console& console, const CheckOptions& options,
        io::IoDeadline& deadline)
      : session_(session),
        communicator_(communicator),
        console_(console),
        options_(options),
        deadline_(deadline),
        json_(communicator, options.json, &deadline) {}

  void look_at_ranks();
  void look_at_network();
  void look_at_data();
  void read_samples(std::int64_t place, std::int64_t places);
  void compare_samples();
  void look_at_weights();
  void look_at_memory();
  void look_at_run_folder();
  void look_at_limits();
  /// Returns the exit code.
  int conclude();

 private:
  bool has_data() const { return !options_.train.data.path.empty(); }
  void find_place();
  void open_weights();
  void blame_weights(const char* what, const char* remedy) {
    weights_findings_.push_back(
        {.severity = Severity::error, .what = what, .where = "--initialize-from", .remedy = remedy});
  }
  void open_data();
  /// Reports the result for a subject.
  void tell(Subject subject) {
    console_.info(format_subject(subject));
    subjects_.push_back(std::move(subject));
  }
  static Subject subject(std::string name, std::string summary, std::vector<std::vector<Finding>> findings) {
    Subject result{.name = std::move(name), .summary = std::move(summary)};
    for (std::vector<Finding>& some : findings) {
      result.findings.insert(result.findings.end(), std::make_move_iterator(some.begin()),
                             std::make_move_iterator(some.end()));
    }
    return result;
  }
  bool opened_everywhere() const {
    return std::all_of(facts_.begin(), facts_.end(), [](const RankFacts& f) { return f.data.opened; });
  }

  comm::MpiSession& session_;
  comm::Communicator& communicator_;
  Console& console_;
  CheckOptions options_;  ///< initial weights may change the network of the job
  io::IoDeadline& deadline_;
  RecordFile json_;
  std::vector<Subject> subjects_;
  std::optional<CheckpointOnRank0> weights_;  ///< initial weights of the job; empty: none, or unreadable
  std::vector<Finding> weights_findings_;     ///< findings about the weights, the same on all ranks

  Place place_;
  std::vector<Finding> place_findings_;
  std::optional<Plan> plan_;  ///< empty: without data, or if this rank cannot open the data
  RankFacts own_;
  std::vector<RankFacts> facts_;  ///< facts of all ranks
  std::vector<HostGroup> hosts_;
  std::vector<std::string> host_names_;
  std::vector<int> speakers_;          ///< first rank of each host
  std::vector<RankFacts> host_facts_;  ///< facts of `speakers_`
  std::vector<comm::PairFigures> pairs_;
  std::uint64_t checkpoint_bytes_ = 0;
  bool unreached_ = false;  ///< some messages have not been delivered
};

void Check::find_place() {
  try {
    place_ = choose_place(communicator_, options_.train);
  } catch (const comm::ConsensusError& error) {  // the same on every rank, as is a UsageError here
    place_findings_.push_back({.severity = Severity::error,
                               .what = error.what(),
                               .where = "devices",
                               .remedy = "give the job GPUs, one for each rank, or choose --device cpu"});
  }
}

/// Initial weights bring their network, unless the user chooses another. A resumed run has its own.
void Check::open_weights() {
  if (options_.train.start.from.empty() || !options_.train.from_checkpoint.empty()) return;
  try {
    weights_.emplace(communicator_,
                     CheckpointChoice{.path = options_.train.start.from, .heads = given_heads(options_.train)},
                     &deadline_, CheckpointOnRank0::Accept::weights);
    all_succeed_or_usage(communicator_,
                         [&] { options_.train = options_of_start(options_.train, {.weights = weights_->record()}); });
  } catch (const UsageError& error) {  // the same on every rank, as is a ConsensusError
    blame_weights(error.what(), "give the options of the network");
  } catch (const comm::ConsensusError& error) {
    blame_weights(error.what(), "name a run folder, a checkpoint or a .safetensors file that is there and whole");
  }
}

void Check::look_at_weights() {
  if (options_.train.start.from.empty()) return;
  if (!options_.train.from_checkpoint.empty() && !weights_ && weights_findings_.empty()) {
    return tell({.name = "weights", .summary = "a run that goes on has its own", .looked_at = false});
  }
  if (weights_ && opened_everywhere()) {
    try {
      weights_->beginnings(plan_->workload.network->parameters(), options_.train.start.reinitialize);
    } catch (const UsageError& error) {
      blame_weights(error.what(), "correct --reinitialize");
    } catch (const comm::ConsensusError& error) {
      blame_weights(error.what(), "give the options of its network, or --reinitialize what is to be new");
    }
  }
  const std::string file = weights_ ? weights_->file().string() : options_.train.start.from.string();
  tell(subject("weights", file, {weights_findings_}));
}

/// Collects this rank's facts about the data and plans the job.
void Check::open_data() {
  try {
    inspect_job_data(communicator_, options_.train);
    const comm::LongOperation opening(communicator_, "opening the data");
    plan_ = complete_plan(communicator_, prepare_workload(options_.train, communicator_.size(), &deadline_), place_);
    const Workload& workload = plan_->workload;
    const io::Dataset* const datasets[] = {workload.training.get(), workload.validation.get()};
    add_files(own_.data, datasets);
    own_.memory_wanted =
        training_memory(place_, plan_->memory, workload, communicator_.rank(), communicator_.ranks_sharing_memory())
            .total();
  } catch (const UsageError& error) {
    own_.data.misfit = error.what();
  } catch (const std::exception& error) {
    own_.data.error = error.what();
  }
}

void Check::look_at_ranks() {
  find_place();
  own_ = own_facts(communicator_.rank(), program_fingerprint());
  own_.device = device_kind(place_, options_.train.execution);
  open_weights();
  if (has_data()) open_data();
  facts_ = gather_facts(communicator_, own_);
  hosts_ = hosts_of(facts_);
  for (const HostGroup& host : hosts_) {
    host_names_.push_back(host.name);
    speakers_.push_back(host.ranks[0]);
    host_facts_.push_back(facts_[host.ranks[0]]);
  }
  const std::vector<comm::RankPlace> places =
      comm::gather_topology(communicator_, device_kind(place_, options_.train.execution), device_identity(place_));
  console_.info(fmt::format("lockstep {} check: {} on {}\n{}", program_version(), counted(communicator_.size(), "rank"),
                            counted(hosts_.size(), "host"), comm::format_topology(places, kMaxRowsOfHosts)));

  std::vector<Finding> transport;
  if (!communicator_.transport_note().empty()) {
    transport.push_back({.severity = Severity::warning,
                         .what = communicator_.transport_note(),
                         .where = list_some(host_names_),
                         .remedy = "start the ranks of a host in one container and as one user"});
  }
  tell(subject("program", fmt::format("lockstep {}, {}", own_.program, own_.mpi), {judge_program(facts_)}));
  const std::string together =
      communicator_.size() == 1 ? "" : fmt::format("; ranks talk through {}", comm::name_of(communicator_.transport()));
  tell(subject("hosts", list_some(host_names_) + together,
               {judge_names(facts_), judge_machines(facts_), judge_processors(facts_), std::move(transport)}));
  std::vector<Finding> cores;
  for (const comm::TopologyWarning& warning : comm::topology_warnings(places, options_.train.execution.threads)) {
    cores.push_back(
        {.severity = Severity::warning, .what = warning.what, .where = "the table above", .remedy = warning.remedy});
  }
  const auto least = std::ranges::min_element(places, {}, [](const comm::RankPlace& place) {
    return place.cpu_group.empty() ? std::numeric_limits<double>::infinity() : place.group_cpus;
  });
  const std::string limit = least->cpu_group.empty() ? ""
                                                     : fmt::format("; the control group {} on {} may use {:.3g} CPUs",
                                                                   least->cpu_group, least->host, least->group_cpus);
  tell(subject("cores", counted(options_.train.execution.threads, "thread") + " a rank" + limit, {std::move(cores)}));
  tell(subject("load", describe_load(facts_), {judge_load(facts_)}));
  tell(subject("products", describe_products(facts_), {}));
  std::vector<std::string> devices;
  for (const ValueGroup& group : group_by(facts_, [](const RankFacts& f) { return f.device; })) {
    devices.push_back(fmt::format("{} x {}", group.ranks.size(), group.value));
  }
  tell(subject("devices", place_findings_.empty() ? list_some(devices) : "not as asked for",
               {place_findings_, judge_devices(facts_)}));
  tell(subject("environment", fmt::format("{} looked at", counted(own_.environment.size(), "variable")),
               {judge_environment(facts_)}));
}

void Check::look_at_network() {
  communicator_.note_activity("measuring the network", -1);
  const int hosts = static_cast<int>(hosts_.size());
  const double deadline = std::min(10.0, options_.train.execution.deadline / 2);
  const comm::ProbeOptions probe{.seconds = options_.seconds, .deadline_seconds = deadline};
  pairs_ = comm::probe_network(session_, communicator_, speakers_,
                               comm::plan_rounds(hosts, comm::most_rounds(probe), 1), probe);
  // Hosts that are one machine exchange messages without the network.
  if (!judge_machines(facts_).empty()) {
    std::erase_if(pairs_, [&](const comm::PairFigures& pair) {
      const auto machine = [&](int host) { return host_facts_[host].machine; };
      return pair.error.empty() && machine(pair.pair.first) == machine(pair.pair.second);
    });
  }
  // Slow pairs are measured again, because other traffic may have been short.
  const std::vector<comm::Round> again = comm::rounds_of(slow_pairs(pairs_, hosts));
  merge_better(pairs_, comm::probe_network(session_, communicator_, speakers_, again, probe));
  unreached_ = std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return !pair.error.empty(); });

  const std::vector<CommonSubnet> subnets = common_subnets(host_facts_);
  std::string interfaces = hosts < 2 ? "one host" : "no subnet in common";
  if (hosts > 1 && !subnets.empty()) {
    interfaces = fmt::format("{} on all hosts ({}{})", subnets[0].subnet, list_some(subnets[0].interfaces),
                             subnets[0].megabits > 0 ? fmt::format(", {} Mbit/s", subnets[0].megabits) : "");
  }
  tell(subject("interfaces", interfaces,
               {judge_interfaces(host_facts_, host_names_), judge_fabric(host_facts_, host_names_)}));
  tell(subject("network", describe_pairs(pairs_, hosts),
               {judge_pairs(pairs_, host_names_), judge_speed(pairs_, host_facts_)}));
  tell({.name = "all-reduce", .summary = describe_all_reduce(pairs_, hosts)});

  communicator_.note_activity("comparing clocks", -1);
  const std::vector<comm::ClockOffset> clocks = comm::measure_clocks(session_, communicator_, speakers_, deadline);
  unreached_ = unreached_ || std::any_of(clocks.begin(), clocks.end(), [](const auto& c) { return !c.error.empty(); });
  tell(subject("clocks", describe_clocks(clocks), {judge_clocks(clocks, host_names_)}));
}

/// Reads samples that have no checksums or contain tokens, as training does, and so finds whatever training would
/// refuse. The ranks of a host share the samples, for at most kSecondsOfReading. Records the number of samples read.
void Check::read_samples(std::int64_t place, std::int64_t places) {
  constexpr std::int64_t kTogether = 64;
  const Workload& workload = plan_->workload;
  StopWatch watch;
  const auto look = [&](const io::Dataset* data, const std::filesystem::path& path) {
    if (data == nullptr || (is_packed_data(path) && workload.network->token_ranges().empty())) return;
    const std::int64_t first = data->info().samples * place / places, end = data->info().samples * (place + 1) / places;
    own_.data.samples_due += static_cast<std::uint64_t>(end - first);
    for (std::int64_t i = first; i < end && watch.seconds() < kSecondsOfReading; i += kTogether) {
      std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(kTogether, end - i)));
      std::iota(samples.begin(), samples.end(), i);
      std::vector<std::byte> x(samples.size() * data->x_bytes()), y(samples.size() * data->y_bytes());
      data->read(samples, io::kNoEpoch, x, y);
      own_.data.samples_read += samples.size();
    }
  };
  look(workload.training.get(), workload.paths.training);
  look(workload.validation.get(),
       workload.paths.validation.empty() ? workload.paths.training : workload.paths.validation);
}

/// Looks for training samples among the validation samples. Only rank 0 reads.
void Check::compare_samples() {
  const Workload& workload = plan_->workload;
  if (communicator_.rank() != 0 || !workload.validation) return;
  if (!workload.paths.validation.empty()) {
    own_.data.leak = shared_files(*workload.training, *workload.validation);
    if (!own_.data.leak.empty()) return;
  }
  const SampleTwins twins = find_twins(*workload.training, *workload.validation);
  (twins.leaks() ? own_.data.leak : own_.data.twins) = twins.in_words();
}

void Check::look_at_data() {
  if (!has_data()) return tell({.name = "data", .summary = "name it with --data", .looked_at = false});
  StopWatch watch;
  const std::uint64_t bytes = own_.data.bytes;
  const bool wanted = is_verified(options_.train.data.verify, bytes);
  if (own_.data.opened) {
    // The ranks of each host share the data: together they read everything once.
    const comm::LongOperation reading(communicator_, "verifying the data");
    const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const HostGroup& group) {
      return std::find(group.ranks.begin(), group.ranks.end(), communicator_.rank()) != group.ranks.end();
    });
    const auto place = std::find(host->ranks.begin(), host->ranks.end(), communicator_.rank()) - host->ranks.begin();
    try {
      for (const io::Dataset* data : {plan_->workload.training.get(), plan_->workload.validation.get()}) {
        if (data == nullptr || !wanted) continue;
        own_.data.verified += data->verify(static_cast<int>(place), static_cast<int>(host->ranks.size()));
      }
    } catch (const std::exception& error) {
      own_.data.damage = error.what();
    }
    try {
      read_samples(place, std::ssize(host->ranks));
      compare_samples();
    } catch (const std::exception& error) {
      own_.data.refused = error.what();
    }
  }
  facts_ = gather_facts(communicator_, own_);
  std::uint64_t verified = 0;
  std::int64_t samples = 0, due = 0;
  for (const RankFacts& rank : facts_) {
    verified += rank.data.verified;
    samples += static_cast<std::int64_t>(rank.data.samples_read);
    due += static_cast<std::int64_t>(rank.data.samples_due);
  }
  std::string summary = options_.train.data.path.string();
  if (own_.data.opened) {
    summary = fmt::format("{}: {}, {}", plan_->workload.paths.training.string(), counted(own_.data.files, "file"),
                          format_bytes(bytes));
  }
  summary += verified > 0 ? fmt::format("; checksums of {} recomputed on {} in {:.2f} s", format_bytes(verified),
                                        counted(hosts_.size(), "host"), watch.seconds())
                          : std::string("; checksums not recomputed");
  if (samples > 0 && samples == due) summary += fmt::format("; {} read", counted(samples, "sample"));
  if (samples > 0 && samples < due) {
    summary += fmt::format("; {} of {} read, as many as {:g} s suffice for", with_commas(samples),
                           counted(due, "sample"), kSecondsOfReading);
  }
  if (!facts_[0].data.twins.empty()) summary += "; " + facts_[0].data.twins;
  tell(subject("data", summary, {judge_data(facts_)}));
}

void Check::look_at_memory() {
  const auto nothing_known = [&](std::string why) {
    tell({.name = "memory", .summary = std::move(why), .looked_at = false});
  };
  if (!has_data()) return nothing_known("depends on the data");
  if (!opened_everywhere()) return nothing_known("depends on the data, which is not there");
  checkpoint_bytes_ = plan_->memory.snapshot;

  std::vector<Finding> of_gpu;
  if (place_.gpu && !options_.train.dry_run) {
    try {
      require_gpu_memory(communicator_, place_, plan_->memory, plan_->workload.model.max_batch,
                         [&](std::int64_t batch) { return memory_with(*plan_, communicator_, batch); });
    } catch (const comm::ConsensusError& error) {
      of_gpu.push_back({.severity = Severity::error,
                        .what = error.what(),
                        .where = "GPUs",
                        .remedy = "a smaller --batch or network, or GPUs with more memory"});
    }
  }
  tell(subject("memory", describe_memory(facts_), {judge_memory(facts_), std::move(of_gpu)}));
}

void Check::look_at_run_folder() {
  if (options_.train.run.folder.empty() && !has_data()) {
    return tell({.name = "run folder", .summary = "name it with --run", .looked_at = false});
  }
  if (communicator_.rank() != 0) return;  // only rank 0 writes there and reports
  const std::filesystem::path folder = options_.train.run.folder.empty() ? "runs" : options_.train.run.folder;
  const io::IoDeadline::Operation looking(&deadline_, io::IoDeadline::Kind::writing, folder);
  RunFolderFacts facts = app::look_at_run_folder(folder);
  facts.continues = options_.train.run.resume.from != Resume::From::nothing || options_.train.run.force;
  facts.holds_run = facts.holds_run && !options_.train.run.folder.empty();  // without --run, the job makes a new folder
  facts.checkpoint = checkpoint_bytes_;
  // Without validations there is no best checkpoint.
  const bool validates = plan_ && plan_->workload.validation;
  facts.keep = static_cast<std::uint64_t>(options_.train.run.keep + (validates ? options_.train.run.keep_best : 0));
  std::string summary = facts.folder.string();
  if (facts.free != kNoLimit) summary += fmt::format(": {} free", format_bytes(facts.free));
  if (checkpoint_bytes_ > 0) {
    summary +=
        fmt::format(", checkpoints of {} take {}", format_bytes(checkpoint_bytes_), format_bytes(facts.wanted()));
  }
  tell(subject("run folder", summary, {judge_run_folder(facts)}));
}

void Check::look_at_limits() {
  // A rank communicates with few others, but reproducible sums connect every rank with every other.
  const auto ranks = static_cast<std::uint64_t>(communicator_.size());
  const std::uint64_t peers =
      options_.train.work.reproducible ? ranks : std::min<std::uint64_t>(ranks, 2 + 6 * std::bit_width(ranks));
  const Wants wants{.open_files = own_.data.files + 2 * peers + kFilesBesidesData,
                    .file_size = checkpoint_bytes_,
                    .gpus = place_.gpu.has_value()};
  tell(subject("limits",
               own_.open_files == kNoLimit ? "open files without limit"
                                           : fmt::format("{} open files", with_commas(own_.open_files)),
               {judge_limits(facts_, wants), judge_shared_memory(facts_, wants.gpus)}));
}

int Check::conclude() {
  console_.info("\n" + format_verdict(subjects_, host_names_));
  std::vector<io::MetricRecord> records = to_records(subjects_);
  for (const comm::PairFigures& pair : pairs_) {
    const auto measured = [&](double figure) { return pair.error.empty() ? figure : kNotKnown; };
    records.push_back({{"kind", "pair"},
                       {"first", host_names_[pair.pair.first]},
                       {"second", host_names_[pair.pair.second]},
                       {"latency_us", measured(1e6 * pair.latency)},
                       {"forward", measured(pair.forward)},
                       {"backward", measured(pair.backward)},
                       {"error", pair.error}});
  }
  json_.write(records);

  // Only rank 0 has the findings about the run folder.
  const std::string error = broadcast_text(communicator_, first_error(subjects_));
  // With undelivered messages MPI cannot be finalized.
  if (unreached_) session_.abort(1, io::visible_text(fmt::format("lockstep check: error: {}", error)));
  if (error.empty()) return 0;
  throw comm::ConsensusError(error);
}

}  // namespace

int run_check(comm::MpiSession& session, const CheckOptions& options) {
  const ExecutionOptions& execution = options.train.execution;
  const auto communicator = communicator_of(session, execution);
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  Check check(session, *communicator, console, options, io_deadline);
  check.look_at_ranks();
  check.look_at_network();
  check.look_at_data();
  check.look_at_weights();
  check.look_at_memory();
  check.look_at_run_folder();
  check.look_at_limits();
  const int code = check.conclude();
  require_output(*communicator, console);
  return code;
}

}  // namespace lockstep::app
