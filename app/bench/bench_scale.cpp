#include "app/bench/bench_scale.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "app/bench/first_ranks.hpp"
#include "app/bench/rank_values.hpp"
#include "app/bench/scaling_report.hpp"
#include "app/bench/timed_steps.hpp"
#include "app/engine/file_watch.hpp"
#include "app/options/choices.hpp"
#include "app/place/placement.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/report/statistics.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {

namespace {

/// Number of sums of all gradients timed in a visit.
constexpr int kGradientSums = 5;

/// The first ranks of the job, as a job of their own. The members are empty on the other ranks.
struct World {
  int ranks = 1;
  std::unique_ptr<comm::MpiSession> session;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<io::IoDeadline> io_deadline;  ///< deadline for its data files
  std::optional<Place> place;
  std::string transport;
};

/// Result of a visit: sums and times over all ranks of the world; the same on all of them.
struct Visit {
  StepTimes times = {};
  double samples = 0;             ///< mean number of samples per step, all ranks together
  double communication = 0;       ///< seconds per step, mean over the ranks; negative: unknown
  double all_reduce_seconds = 0;  ///< time of an all-reduce of all gradients
  double gradient_bytes = 0;

  StepShare share() const { return split(times); }
};

/// A number of samples per step in a world; weak and strong scaling may share one.
struct Case {
  std::size_t world = 0;  ///< index in the list of worlds
  std::int64_t samples = 0;
  std::vector<Visit> visits;  ///< filled on the world's ranks
};

std::int64_t strong_batch(const BenchScaleOptions& options, const std::vector<int>& worlds) {
  const WorkOptions& work = options.work.train.work;
  return options.global_batch > 0 ? options.global_batch : work.batch * work.accumulate * worlds.front();
}

/// Throws UsageError if a rank would have no samples.
void require_samples(const BenchScaleOptions& options, const std::vector<int>& worlds) {
  const std::int64_t samples = strong_batch(options, worlds),
                     parts = worlds.back() * options.work.train.work.accumulate;
  if (options.scaling == Scaling::weak || samples >= parts) return;
  throw UsageError(fmt::format(
      "strong scaling: {} cannot share {}{}: give a --global-batch of at least {}, fewer --worlds, or --scaling weak",
      counted(worlds.back(), "rank"), counted(samples, "sample"),
      options.work.train.work.accumulate > 1 ? fmt::format(" in {} micro-steps", options.work.train.work.accumulate)
                                             : "",
      parts));
}

/// Number of timed steps in a visit: the user's, or as many as take about a second.
std::int64_t steps_of_a_visit(const BenchScaleOptions& options, double step_seconds) {
  constexpr double kSeconds = 1, kFewest = 10, kMax = 2000;
  if (options.repeat > 0) return options.repeat;
  return static_cast<std::int64_t>(std::clamp(kSeconds / step_seconds, kFewest, kMax));
}

class Bench {
 public:
  /// Collective.
  Bench(comm::MpiSession& session, comm::Communicator& everybody, Console& console, const BenchScaleOptions& options,
        const std::vector<int>& sizes);

  /// Collective. Visits every case once per round.
  void visit_all();
  /// On rank 0.
  std::vector<ScalingCurve> curves(const std::vector<std::string>& host_of_rank) const;
  const ScalingSetting& setting() const noexcept { return setting_; }

 private:
  std::vector<std::size_t> cases_of(const std::function<std::int64_t(int)>& samples);
  Visit visit(World& world, std::int64_t samples);
  Visit timed(World& world, TimedSteps& bench);
  ScalingPoint point(const Case& one, const std::vector<std::string>& host_of_rank) const;
  void note_setting(World& world, TimedSteps& bench);

  Console& console_;
  const BenchScaleOptions& options_;
  FirstRanks first_ranks_;
  std::vector<World> worlds_;
  std::vector<Case> cases_;
  std::vector<std::size_t> weak_, strong_;  ///< indices of cases, by world; empty: not requested
  ScalingSetting setting_;
};

Bench::Bench(comm::MpiSession& session, comm::Communicator& everybody, Console& console,
             const BenchScaleOptions& options, const std::vector<int>& sizes)
    : console_(console), options_(options), first_ranks_(everybody, options.work.train.execution.deadline) {
  const ExecutionOptions& execution = options.work.train.execution;
  for (const int size : sizes) {
    worlds_.push_back({.ranks = size,
                       .session = session.subset(size, execution.deadline),
                       .communicator = {},
                       .io_deadline = {},
                       .place = {},
                       .transport = {}});
    World& world = worlds_.back();
    first_ranks_.run(size, [&] {
      world.communicator = comm::make_communicator(*world.session, communicator_options(execution));
      world.io_deadline.reset(new io::IoDeadline(watch_files(session, *world.communicator, execution.io_deadline)));
      world.place = find_place(*world.communicator, execution);
    });
  }
  const std::int64_t per_rank = options.work.train.work.batch * options.work.train.work.accumulate;
  const std::int64_t in_all = strong_batch(options, sizes);
  if (options.scaling != Scaling::strong) weak_ = cases_of([&](int ranks) { return per_rank * ranks; });
  if (options.scaling != Scaling::weak) strong_ = cases_of([&](int) { return in_all; });
}

std::vector<std::size_t> Bench::cases_of(const std::function<std::int64_t(int)>& samples) {
  std::vector<std::size_t> indices;
  for (std::size_t world = 0; world < worlds_.size(); ++world) {
    const std::int64_t wanted = samples(worlds_[world].ranks);
    const auto known = std::find_if(cases_.begin(), cases_.end(),
                                    [&](const Case& one) { return one.world == world && one.samples == wanted; });
    indices.push_back(static_cast<std::size_t>(known - cases_.begin()));
    if (known == cases_.end()) cases_.push_back({.world = world, .samples = wanted, .visits = {}});
  }
  return indices;
}

void Bench::visit_all() {
  const double visits = static_cast<double>(options_.rounds) * static_cast<double>(cases_.size());
  double done = 0;
  for (std::int64_t round = 0; round < options_.rounds; ++round) {
    for (Case& one : cases_) {
      World& world = worlds_[one.world];
      console_.progress(done++ / visits,
                        fmt::format("round {} of {}: {}", round + 1, options_.rounds, counted(world.ranks, "rank")));
      first_ranks_.run(world.ranks, [&] { one.visits.push_back(visit(world, one.samples)); });
    }
  }
  console_.clear_progress();
}

/// Runs on the ranks of `world`.
Visit Bench::visit(World& world, std::int64_t samples) {
  StepWork work = options_.work;
  work.train.work.global_batch = samples;
  TimedSteps bench(*world.session, *world.communicator, *world.place, work, *world.io_deadline);
  if (bench.workload().work.global_batch < samples) {
    throw UsageError(fmt::format("a step of {} on {}, and {} has {}: give a smaller --batch or --global-batch",
                                 counted(samples, "sample"), counted(world.ranks, "rank"),
                                 work.train.data.path.string(), with_commas(bench.workload().work.global_batch)));
  }
  note_setting(world, bench);
  return timed(world, bench);
}

/// Measures the seconds of a step, the same on all ranks of a world, and notifies the waiting ranks before their
/// deadline.
class Pace {
 public:
  Pace(FirstRanks& first_ranks, comm::Communicator& communicator, double deadline_seconds)
      : first_ranks_(first_ranks), communicator_(communicator), deadline_seconds_(deadline_seconds) {}

  /// Collective: call after every step.
  void step_done() {
    if (++steps_ < next_) return;
    const double own = watch_.seconds() / static_cast<double>(steps_);
    seconds_ = std::max(1e-9, largest_over_ranks(communicator_, std::span(&own, 1)).front());
    next_ = static_cast<std::int64_t>(std::clamp(deadline_seconds_ / 4 / seconds_, 1.0, 1e9));
    first_ranks_.announce(static_cast<double>(next_) * seconds_);
    communicator_.barrier();
    communicator_.wait();
    steps_ = 0;
    watch_.lap();
  }
  double seconds() const noexcept { return seconds_; }

 private:
  FirstRanks& first_ranks_;
  comm::Communicator& communicator_;
  double deadline_seconds_;
  std::int64_t steps_ = 0, next_ = 1;  ///< steps since the last notification; steps until the next one
  double seconds_ = 1;
  StopWatch watch_;
};

/// Makes warm-up steps, then timed steps, then sums.
Visit Bench::timed(World& world, TimedSteps& bench) {
  comm::Communicator& communicator = *world.communicator;
  Pace pace(first_ranks_, communicator, options_.work.train.execution.deadline);
  for (std::int64_t i = 0; i < options_.warmup; ++i) {
    bench.step();
    pace.step_done();
  }
  const std::int64_t count = steps_of_a_visit(options_, pace.seconds());
  communicator.barrier();
  communicator.wait();
  const double samples = bench.samples(), communication = bench.communication_seconds();
  std::vector<RankStep> steps;
  for (std::int64_t i = 0; i < count; ++i) {
    steps.push_back(bench.step());
    pace.step_done();
  }
  Visit found{.times = bench.gather(steps)};
  found.samples = (bench.samples() - samples) / static_cast<double>(count);
  found.communication =
      communication < 0 ? -1
                        : (bench.communication_seconds() - communication) / static_cast<double>(count) / world.ranks;
  communicator.all_reduce(std::span(&found.communication, 1));
  communicator.wait();
  found.gradient_bytes = static_cast<double>(bench.engine().training().parameters.updated_elements() * sizeof(float));
  if (world.ranks > 1) found.all_reduce_seconds = bench.time_gradient_sum(kGradientSums);
  return found;
}

void Bench::note_setting(World& world, TimedSteps& bench) {
  const WorkOptions& work = options_.work.train.work;
  world.transport = comm::name_of(bench.engine().gradient_communicator().transport());
  if (!setting_.network.empty()) return;
  setting_ = {.network = bench.workload().network->signature(),
              .backend = bench.engine().backend().description(),
              .optimizer = std::string(model::name_of(options_.work.train.optimizer.kind)),
              .input = word_of(options_.work.input),
              .batch = work.batch,
              .accumulate = work.accumulate,
              .rounds = options_.rounds,
              .warmup = options_.warmup,
              .repeat = options_.repeat};
  if (!world.place->note.empty()) console_.info(world.place->note);
}

/// On rank 0.
ScalingPoint Bench::point(const Case& one, const std::vector<std::string>& host_of_rank) const {
  const World& world = worlds_[one.world];
  std::vector<std::size_t> order(one.visits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return one.visits[a].share().step() < one.visits[b].share().step();
  });
  // All figures but those of the sums come from one visit, so that they are consistent.
  const Visit& typical = one.visits[order[order.size() / 2]];
  StepTimes all{.ranks = world.ranks, .cells = {}};
  std::vector<double> sums;
  for (const Visit& visit : one.visits) {
    all.cells.insert(all.cells.end(), visit.times.cells.begin(), visit.times.cells.end());
    sums.push_back(visit.all_reduce_seconds);
  }
  ScalingPoint found{.ranks = world.ranks, .transport = world.transport, .samples = one.samples};
  found.host_of_rank.assign(host_of_rank.begin(), host_of_rank.begin() + world.ranks);
  found.share = typical.share();
  found.rate = typical.samples / found.share.step();
  found.all_reduce_seconds = median(sums);
  found.communication = typical.communication < 0 ? found.all_reduce_seconds : typical.communication;
  found.gradient_bytes = typical.gradient_bytes;
  found.behind = stragglers(all);
  return found;
}

std::vector<ScalingCurve> Bench::curves(const std::vector<std::string>& host_of_rank) const {
  std::vector<ScalingCurve> curves;
  const auto add = [&](const std::string& kind, const std::vector<std::size_t>& cases) {
    if (cases.empty()) return;
    ScalingCurve& curve = curves.emplace_back(ScalingCurve{.kind = kind, .points = {}});
    for (const std::size_t index : cases) curve.points.push_back(point(cases_[index], host_of_rank));
  };
  add("weak", weak_);
  add("strong", strong_);
  return curves;
}

}  // namespace

int run_bench_scale(comm::MpiSession& session, const BenchScaleOptions& options) {
  const ExecutionOptions& execution = options.work.train.execution;
  const std::vector<int> sizes = world_sizes(session.size(), options.worlds);
  require_samples(options, sizes);
  const auto everybody = comm::make_communicator(
      session, {.deadline_seconds = execution.deadline, .excuse_seconds = execution.io_deadline + execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *everybody, execution.io_deadline);
  Console console(everybody->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  ResultFile csv(*everybody, options.csv, &io_deadline), svg(*everybody, options.svg, &io_deadline);
  RecordFile json(*everybody, options.json, &io_deadline);
  std::vector<std::string> hosts;
  for (const comm::RankPlace& place : comm::gather_topology(*everybody, "")) hosts.push_back(place.host);
  for (const int size : sizes) {
    console.info(fmt::format("{}: {}", counted(size, "rank"),
                             name_hosts(std::span(hosts).first(static_cast<std::size_t>(size)))));
  }

  Bench bench(session, *everybody, console, options, sizes);
  bench.visit_all();
  // Only rank 0 has all figures, because it is in every world; it writes the results.
  std::vector<ScalingCurve> curves;
  if (everybody->rank() == 0) curves = bench.curves(hosts);
  if (!curves.empty()) console.info(format_setting(bench.setting()));
  for (const ScalingCurve& curve : curves) console.info("\n" + format_table(curve));
  csv.write(format_csv(curves));
  json.write(to_records(curves, bench.setting()));
  svg.write(curves.empty() ? std::string() : format_svg(curves, bench.setting()));
  require_output(*everybody, console);
  return 0;
}

}  // namespace lockstep::app
