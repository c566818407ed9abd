#include "app/bench/bench_agree.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "app/bench/agree_report.hpp"
#include "app/bench/first_ranks.hpp"
#include "app/bench/scratch_folder.hpp"
#include "app/engine/divergence.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/snapshot.hpp"
#include "app/plan/agreement.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/train/train.hpp"
#include "comm/agreement.hpp"
#include "comm/messages.hpp"
#include "comm/session/this_process.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace {

/// Time that servers, and ranks that a mode leaves out, wait for a whole training.
constexpr double kWaitSeconds = 24 * 3600;

/// Number of a mode's ranks that only serve.
int serving_ranks(const TrainOptions& train, int ranks) {
  return ranks - make_agreement(train, ranks)->roles().training_ranks;
}

/// A descriptor that discards output.
class Nowhere {
 public:
  Nowhere() : descriptor_(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    if (descriptor_.get() < 0) throw io::FileError("cannot open /dev/null");
  }
  int get() const noexcept { return descriptor_.get(); }

 private:
  io::Descriptor descriptor_;
};

class Comparison {
 public:
  /// Collective.
  Comparison(comm::MpiSession& session, comm::Communicator& everybody, Console& console,
             const BenchAgreeOptions& options, StopSignals& signals, io::IoDeadline& deadline);

  /// Collective. Throws UsageError, comm::AgreedError.
  void train_all();
  // On rank 0.
  const std::vector<AgreeTraining>& all() const noexcept { return all_; }
  const std::vector<AgreeTraining>& chosen() const noexcept { return chosen_; }
  const AgreeSetting& setting() const noexcept { return setting_; }

 private:
  /// The ranks that a mode uses, as a job of their own.
  struct World {
    int ranks = 1;
    std::unique_ptr<comm::MpiSession> session;  ///< nullptr on ranks outside of it
  };
  World& world_of(const AgreeCase& mode);
  std::vector<double> rates_of(const AgreeCase& mode) const;
  AgreeTraining train(std::size_t mode, double rate, std::int64_t seed);
  bool train_here(World& world, const TrainOptions& options);
  double speed_of(int rank) const;
  std::vector<AgreeValidation> validations_in(const std::filesystem::path& run) const;
  void choose_rates();

  comm::Communicator& everybody_;
  Console& console_;
  const BenchAgreeOptions& options_;
  StopSignals& signals_;
  ScratchFolder folder_;
  FirstRanks first_ranks_;
  std::vector<World> worlds_;
  int workers_ = 1;
  std::vector<int> serving_;  ///< number of ranks that only serve, in each mode
  AgreeSetting setting_;
  std::vector<double> rates_;  ///< chosen rate of each mode
  std::vector<AgreeTraining> all_, chosen_;
  double done_ = 0, to_do_ = 1;
};

Comparison::Comparison(comm::MpiSession& session, comm::Communicator& everybody, Console& console,
                       const BenchAgreeOptions& options, StopSignals& signals, io::IoDeadline& deadline)
    : everybody_(everybody),
      console_(console),
      options_(options),
      signals_(signals),
      folder_(everybody, options.folder, "lockstep-bench-agree", deadline),
      first_ranks_(everybody, kWaitSeconds) {
  int serving = 0;
  for (const AgreeCase& mode : options.modes) {
    serving_.push_back(serving_ranks(mode.train, session.size()));
    serving = std::max(serving, serving_.back());
  }
  workers_ = session.size() - serving;
  for (const SlowRank& slow : options.slow) {
    if (slow.rank < workers_) continue;
    throw UsageError(fmt::format("--slow-rank {}: {} train, from rank 0 on", slow.rank, counted(workers_, "rank")));
  }
  std::set<int> sizes;
  for (const int its : serving_) sizes.insert(workers_ + its);
  for (const int size : sizes) {
    worlds_.push_back({.ranks = size, .session = session.subset(size, options.modes.front().train.execution.deadline)});
  }
  setting_.workers = workers_;
  setting_.target = options.modes.front().train.validation.target_metric;
  for (const SlowRank& slow : options.slow) {
    setting_.slow +=
        fmt::format("{}rank {} at {:g} of its speed", setting_.slow.empty() ? "" : ", ", slow.rank, slow.speed);
  }
  for (const AgreeCase& mode : options.modes) {
    setting_.modes.push_back(mode.name);
    to_do_ += static_cast<double>(rates_of(mode).size() + options.seeds.size() - 1);
  }
}

Comparison::World& Comparison::world_of(const AgreeCase& mode) {
  const int ranks = workers_ + serving_[static_cast<std::size_t>(&mode - options_.modes.data())];
  return *std::ranges::find_if(worlds_, [&](const World& world) { return world.ranks == ranks; });
}

std::vector<double> Comparison::rates_of(const AgreeCase& mode) const {
  return options_.rates.empty() ? std::vector<double>{mode.train.schedule.base} : options_.rates;
}

void Comparison::train_all() {
  choose_rates();
  for (std::size_t i = 1; i < options_.seeds.size(); ++i) {
    for (std::size_t mode = 0; mode < options_.modes.size(); ++mode) {
      chosen_.push_back(train(mode, rates_[mode], options_.seeds[i]));
    }
  }
  console_.clear_progress();
}

/// With the first seed, trains each mode at one rate after the other. Rank 0 decides.
void Comparison::choose_rates() {
  std::map<std::size_t, std::vector<AgreeTraining>> tried;
  std::size_t most = 0;
  for (const AgreeCase& mode : options_.modes) most = std::max(most, rates_of(mode).size());
  for (std::size_t i = 0; i < most; ++i) {
    for (std::size_t mode = 0; mode < options_.modes.size(); ++mode) {
      const std::vector<double> rates = rates_of(options_.modes[mode]);
      if (i < rates.size()) tried[mode].push_back(train(mode, rates[i], options_.seeds.front()));
    }
  }
  for (std::size_t mode = 0; mode < options_.modes.size(); ++mode) {
    const AgreeTraining& best = best_of(tried[mode], setting_);
    chosen_.push_back(best);
    double rate = best.rate;
    everybody_.broadcast(std::as_writable_bytes(std::span(&rate, 1)), 0);
    everybody_.wait();
    rates_.push_back(rate);
  }
}

/// Collective over all ranks of the job. On rank 0 the result has its validations.
AgreeTraining Comparison::train(std::size_t mode, double rate, std::int64_t seed) {
  const AgreeCase& one = options_.modes[mode];
  console_.progress(done_++ / to_do_, fmt::format("{}, rate {:g}, seed {}", one.name, rate, seed));
  World& world = world_of(one);
  TrainOptions options = one.train;
  options.schedule.base = rate;
  options.work.seed = static_cast<std::uint64_t>(seed);
  options.run.folder = folder_.path() / fmt::format("training-{:.0f}", done_);
  options.run.checkpoint_every.steps = -1;
  options.reports.tensorboard = false;
  options.reports.progress = false;
  AgreeTraining training{.mode = mode, .rate = rate, .seed = seed};
  first_ranks_.run(world.ranks, [&] { training.diverged = train_here(world, options); });
  if (everybody_.rank() == 0 && !training.diverged) training.validations = validations_in(options.run.folder);
  comm::all_succeed(everybody_, [&] {
    if (everybody_.rank() == 0 && !training.diverged && training.validations.empty()) {
      throw std::runtime_error("there is nothing to compare: the data has no validation part; give --validation");
    }
  });
  if (everybody_.rank() == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(options.run.folder, ignored);
    all_.push_back(training);
  }
  return training;
}

double Comparison::speed_of(int rank) const {
  const auto slow = std::ranges::find_if(options_.slow, [&](const SlowRank& one) { return one.rank == rank; });
  return slow == options_.slow.end() ? 1 : slow->speed;
}

/// Runs on the ranks of `world`. Returns true if training diverged.
bool Comparison::train_here(World& world, const TrainOptions& options) {
  const Nowhere nowhere;
  std::optional<Console> quiet;
  if (world.session->rank() == 0) {
    quiet.emplace(nowhere.get(), nowhere.get());
  } else {
    quiet.emplace(false);
  }
  const auto note = [&](const Plan& plan) {
    setting_.network = plan.workload.network->signature();
    setting_.metric = plan.workload.task->best_key();
    setting_.is_better = [task = *plan.workload.task](double a, double b) { return task.is_better(a, b); };
    setting_.global_batch = plan.workload.work.global_batch;
  };
  int code = 0;
  try {
    code = app::train(*world.session, options, signals_,
                      {.console = *quiet,
                       .around_steps = [](const std::function<int()>& steps) { return steps(); },
                       .planned = note,
                       .speed = speed_of(world.session->rank())});
  } catch (const Divergence&) {
    return true;
  }
  signals_.note();  // a training ignores signals at its end
  if (code != 0) throw comm::AgreedError("asked to stop before everything was measured: there is nothing to report");
  return false;
}

std::vector<AgreeValidation> Comparison::validations_in(const std::filesystem::path& run) const {
  std::ifstream file(run / "metrics.jsonl");
  const std::string lines{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto losses = io::numbers_by_step(lines, "validation", "loss"),
             metrics = io::numbers_by_step(lines, "validation", setting_.metric),
             seconds = io::numbers_by_step(lines, "validation", "training_seconds");
  std::vector<AgreeValidation> validations;
  for (const auto& [step, loss] : losses) {
    validations.push_back({.step = step,
                           .samples = static_cast<double>(step * setting_.global_batch),
                           .seconds = seconds.at(step),
                           .loss = loss,
                           .metric = metrics.at(step)});
  }
  return validations;
}

/// On one host each rank becomes an island unless the user decides otherwise; by default they would be one.
BenchAgreeOptions with_islands(const BenchAgreeOptions& options, comm::Communicator& everybody) {
  const std::vector<std::string> hosts = comm::all_gather_text(everybody, comm::host_name());
  const bool one_host = std::ranges::all_of(hosts, [&](const std::string& host) { return host == hosts.front(); });
  BenchAgreeOptions settled = options;
  int serving = 0;
  for (const AgreeCase& mode : options.modes) {
    serving = std::max(serving, serving_ranks(mode.train, everybody.size()));
  }
  for (AgreeCase& mode : settled.modes) {
    if (one_host && mode.train.agree.local_steps > 0 && mode.train.agree.islands == 0) {
      mode.train.agree.islands = everybody.size() - serving;
    }
  }
  return settled;
}

}  // namespace

int run_bench_agree(comm::MpiSession& session, const BenchAgreeOptions& options, StopSignals& signals) {
  const ExecutionOptions& execution = options.modes.front().train.execution;
  const auto everybody = comm::make_communicator(
      session, {.deadline_seconds = execution.deadline, .excuse_seconds = execution.io_deadline + execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *everybody, execution.io_deadline);
  Console console(everybody->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  console.set_progress(options.modes.front().train.reports.progress);
  ResultFile csv(*everybody, options.csv, &io_deadline), svg(*everybody, options.svg, &io_deadline);
  RecordFile json(*everybody, options.json, &io_deadline);
  const BenchAgreeOptions settled = with_islands(options, *everybody);
  Comparison bench(session, *everybody, console, settled, signals, io_deadline);
  bench.train_all();
  const bool speaks = everybody->rank() == 0;
  if (speaks) console.info(format_table(bench.chosen(), bench.setting()));
  std::vector<io::MetricRecord> records;
  csv.write(speaks ? format_csv(bench.all(), bench.chosen(), bench.setting()) : std::string());
  if (speaks) records = to_records(bench.all(), bench.chosen(), bench.setting());
  json.write(records);
  svg.write(speaks ? format_svg(bench.chosen(), bench.setting()) : std::string());
  require_output(*everybody, console);
  return 0;
}

}  // namespace lockstep::app
