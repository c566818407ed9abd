#include "app/bench/bench_all_reduce.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/bench/rank_values.hpp"
#include "app/engine/file_watch.hpp"
#include "app/options/all_reduce_option.hpp"
#include "app/options/choices.hpp"
#include "app/place/placement.hpp"
#include "app/plan/host_memory.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"
#include "comm/host/memory_limit.hpp"
#include "comm/messages.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {
namespace {

constexpr double kBatchSeconds = 2e-3;
constexpr std::int64_t kMaxSums = 200;
constexpr double kWarmupSeconds = 1;
// Without --repeat, each algorithm runs for a second, with 5 to 100 batches; 3 batches if 5 take too long.
constexpr double kTimedSeconds = 1, kLongSeconds = 20;
constexpr std::int64_t kFewestBatches = 3, kUsualBatches = 5, kMaxBatches = 100;
/// Elements that are filled and checked at a time.
constexpr std::size_t kPiece = std::size_t{1} << 20;

/// Returns the seconds of `sums` all-reduces on this rank; all ranks start together.
double time_batch(comm::Communicator& control, AllReduce& algorithm, std::size_t count, std::int64_t sums) {
  control.barrier();
  control.wait();
  StopWatch watch;
  algorithm.sum(count, sums);
  return watch.seconds();
}
/// Collective: returns the seconds on the slowest rank.
double slowest_batch(comm::Communicator& control, AllReduce& algorithm, std::size_t count, std::int64_t sums) {
  const double own = time_batch(control, algorithm, count, sums);
  return largest_over_ranks(control, std::span(&own, 1)).front();
}

/// Collective: returns the number of wrong elements on this rank after an all-reduce with known sums.
std::size_t check_sum(const comm::Communicator& control, AllReduce& algorithm, std::size_t count,
                      const KnownSums& terms) {
  std::vector<float> values;
  const auto pieces = [&](auto work) {
    for (std::size_t first = 0; first < count; first += kPiece) {
      values.resize(std::min(kPiece, count - first));
      work(first);
    }
  };
  pieces([&](std::size_t first) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = terms.term(first + i, control.rank());
    algorithm.load(first, values);
  });
  algorithm.sum(count, 1);
  std::size_t wrong = 0;
  pieces([&](std::size_t first) {
    algorithm.fetch(first, values);
    wrong += terms.count_wrong(values, first);
  });
  return wrong;
}

/// Collective: warms up; returns the number of all-reduces in a batch and the seconds of a batch.
std::pair<std::int64_t, double> prepare(comm::Communicator& control, AllReduce& algorithm, std::size_t count,
                                        std::int64_t warmup) {
  // Repeated sums overflow from now on; additions of infinities take the same time.
  const auto fits = [](double seconds, double one) { return static_cast<std::int64_t>(seconds / std::max(one, 1e-9)); };
  for (int i = 0; i < algorithm.slow_batches(); ++i) slowest_batch(control, algorithm, count, 1);
  double estimate = slowest_batch(control, algorithm, count, 1);  // the same on every rank
  warmup = std::min(warmup, std::max(fits(kWarmupSeconds, estimate), std::int64_t{1}));
  for (std::int64_t i = 0; i < warmup; ++i) estimate = slowest_batch(control, algorithm, count, 1);
  const std::int64_t sums = std::clamp(fits(kBatchSeconds, estimate), std::int64_t{1}, kMaxSums);
  for (int i = 0; i < algorithm.slow_batches(); ++i) slowest_batch(control, algorithm, count, sums);
  return {sums, estimate * static_cast<double>(sums)};
}

/// Number of rounds; in each, every algorithm runs one batch.
std::int64_t rounds_for(double round_seconds, std::size_t algorithms) {
  const auto fit = [&](double seconds) { return static_cast<std::int64_t>(seconds / std::max(round_seconds, 1e-9)); };
  const std::int64_t least = std::clamp(fit(kLongSeconds), kFewestBatches, kUsualBatches);
  return std::clamp(fit(kTimedSeconds * static_cast<double>(algorithms)), least, kMaxBatches);
}

/// Collective: returns the largest size up to `wanted` for which the ranks of every host can hold `copies` copies each
/// in half of the free memory. Used if the user did not give a size.
std::int64_t largest_that_fits(comm::Communicator& control, std::int64_t wanted, std::size_t copies) {
  const std::vector<comm::RankPlace> places = comm::gather_topology(control, "");
  const std::string& host = places[control.rank()].host;
  const auto neighbours = static_cast<std::size_t>(
      std::count_if(places.begin(), places.end(), [&](const comm::RankPlace& place) { return place.host == host; }));
  const std::string memory = comm::read_meminfo();
  std::int64_t own = wanted;
  const auto twice = [&] { return 2 * copies * neighbours * static_cast<std::size_t>(own) * sizeof(float); };
  while (own > 1 && !comm::memory_shortage(twice(), 1, memory).empty()) own /= 2;
  for (const std::string& theirs : comm::all_gather_text(control, fmt::format("{}", own))) {
    own = std::min(own, static_cast<std::int64_t>(std::stoll(theirs)));
  }
  return own;
}

std::vector<AllReduceAlgorithm> chosen_algorithms(const BenchAllReduceOptions& options,
                                                  const comm::Communicator& control, const Place& place) {
  const bool gpu = place.gpu.has_value();
  if (options.algorithms.empty()) return usual_algorithms(control.transport(), gpu, options.execution.device);
  std::vector<AllReduceAlgorithm> kinds = options.algorithms;
  if (!gpu && std::find(kinds.begin(), kinds.end(), AllReduceAlgorithm::nccl) != kinds.end()) {
    throw comm::ConsensusError(
        fmt::format("--algorithms nccl needs a GPU for every rank{}{}", place.note.empty() ? "" : "; ", place.note));
  }
  return kinds;
}

}  // namespace

std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = min; size<max; size = size> max / factor ? max : size * factor) sizes.push_back(size);
  sizes.push_back(max);
  return sizes;
}

std::vector<AllReduceRow> measure_size(comm::Communicator& control,
                                       std::span<const std::unique_ptr<AllReduce>> algorithms, std::int64_t elements,
                                       const KnownSums& terms, const Repetitions& repetitions) {
  const auto count = static_cast<std::size_t>(elements);
  control.note_activity("timing all-reduces", -1);  // -1: there are no steps
  std::vector<AllReduceRow> rows;
  std::vector<double> wrong;
  for (const auto& algorithm : algorithms) {
    algorithm->begin_size();
    wrong.push_back(static_cast<double>(check_sum(control, *algorithm, count, terms)));
    rows.push_back({.algorithm = algorithm->name(),
                    .transport = algorithm->transport(),
                    .ranks = control.size(),
                    .count = elements});
    rows.back().wire = algorithm->wire();
    rows.back().schedule = algorithm->schedule(count);
  }
  control.all_reduce(wrong);
  control.wait();

  double round_seconds = 0;
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    rows[i].wrong = std::llround(wrong[i]);
    double batch = 0;
    std::tie(rows[i].sums, batch) = prepare(control, *algorithms[i], count, repetitions.warmup);
    round_seconds += batch;
  }
  const std::int64_t rounds =
      repetitions.repeat > 0 ? repetitions.repeat : rounds_for(round_seconds, algorithms.size());
  std::vector<std::vector<double>> seconds(algorithms.size());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < algorithms.size(); ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % algorithms.size();
      seconds[i].push_back(time_batch(control, *algorithms[i], count, rows[i].sums) /
                           static_cast<double>(rows[i].sums));
    }
  }
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    rows[i].seconds = percentiles_of(largest_over_ranks(control, seconds[i]));
    rows[i].batches = rounds;
  }
  return rows;
}

void require_right(std::span<const AllReduceRow> rows) {
  std::int64_t wrong = 0;
  std::vector<AllReduceRow> guilty;
  for (const AllReduceRow& row : rows) {
    wrong += row.wrong;
    if (row.wrong > 0) guilty.push_back(row);
  }
  if (wrong == 0) return;
  throw comm::ConsensusError(
      fmt::format("wrong elements: {}, by {} (see #wrong above): a device, a link or a library computes wrongly",
                  with_commas(wrong), fmt::join(algorithms_of(guilty), ", ")));
}

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto control = comm::make_communicator(session, {.wire = execution.wire,
                                                         .all_reduce = execution.all_reduce,
                                                         .deadline_seconds = execution.deadline,
                                                         .excuse_seconds = execution.io_deadline + execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *control, execution.io_deadline);
  Console console(control->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  const Place place = find_place(*control, execution);
  if (!place.note.empty()) console.info(place.note);
  if (!control->transport_note().empty()) console.info(control->transport_note());
  const std::vector<AllReduceAlgorithm> kinds = chosen_algorithms(options, *control, place);

  const std::size_t copies = host_copies(kinds);
  std::int64_t max = options.max;
  if (!options.max_given) {
    max = std::max(options.min, largest_that_fits(*control, max, copies));
    if (max < options.max) {
      console.info(fmt::format("memory: all-reduces of at most {} elements fit (--max)", with_commas(max)));
    }
  }
  require_host_memory(*control, {.arenas = (copies * static_cast<std::size_t>(max) + kPiece) * sizeof(float)});
  ResultFile csv(*control, options.csv, &io_deadline), svg(*control, options.svg, &io_deadline);
  RecordFile json(*control, options.json, &io_deadline);

  const std::vector<std::string> hosts = comm::all_gather_text(*control, session.host());
  const auto host_count = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  const std::optional<LinkBound> bound = options.link_gbps ? link_bound(hosts, *options.link_gbps) : std::nullopt;
  const auto algorithms = make_all_reduces(session, *control, kinds, place, execution, static_cast<std::size_t>(max));

  const std::string where = fmt::format("{} on {}", counted(control->size(), "rank"), counted(host_count, "host"));
  std::string head = fmt::format("all-reduce over {}, in place; times of the slowest rank, time: the median", where);
  for (const auto& algorithm : algorithms)
    head += (algorithm->description().empty() ? "" : "\n") + algorithm->description();
  if (execution.wire != comm::WireFormat::fp32) {
    std::vector<std::string> narrow;
    for (const auto& algorithm : algorithms) {
      if (algorithm->wire() != "fp32") narrow.push_back(algorithm->name());
    }
    head += fmt::format("\nwire: {}", narrow.empty() ? "fp32: none of these algorithms sends messages"
                                                     : fmt::format("{} by {}, else fp32", word_of(execution.wire),
                                                                   fmt::join(narrow, ", ")));
  }
  if (bound) head += "\n" + describe(*bound);
  if (options.link_gbps && !bound) head += "\nbound: none, all ranks are on one host and no link is crossed";
  console.info(head + "\n" + format_head(bound.has_value()));
  csv.write(csv_head() + "\n");
  const KnownSums terms(control->size(),
                        execution.wire == comm::WireFormat::bf16 ? KnownSums::Wire::bf16 : KnownSums::Wire::fp32);

  std::vector<AllReduceRow> all;
  for (const std::int64_t size : bench_sizes(options.min, max, options.factor)) {
    std::vector<AllReduceRow> rows = measure_size(*control, algorithms, size, terms, options.repetitions);
    for (AllReduceRow& row : rows) {
      row.hosts = host_count;
      row.bound = bound;
      console.info(format_row(row));
      csv.write(csv_row(row) + "\n");
      json.write(to_record(row));
    }
    all.insert(all.end(), rows.begin(), rows.end());
  }
  std::string ending;
  for (const std::string& algorithm : algorithms_of(all)) {
    ending +=
        fmt::format("\naverage bus bandwidth of {}: {:.3f} GB/s", algorithm, mean_bus_bandwidth(all, algorithm) / 1e9);
  }
  const std::string summary = format_summary(all);
  console.info(ending.substr(1) + (summary.empty() ? "" : "\n\n" + summary));
  if (const auto best = best_limits(all)) {
    console.info(fmt::format("fastest on this network: --all-reduce {} ({})", all_reduce_word({.limits = best}),
                             to_text(*best)));
  }
  if (const auto fastest = fastest_transport(all)) {
    console.info("fastest for gradients: " + to_text(*fastest));
  }
  svg.write(to_svg(bandwidth_chart(all, where + ", float32, in place; median of the slowest rank's times")));
  require_right(all);
  require_output(*control, console);
  return 0;
}

}  // namespace lockstep::app
