#include "app/bench_all_reduce.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/console.hpp"
#include "app/figures.hpp"
#include "app/placement.hpp"
#include "app/report.hpp"
#include "app/result_file.hpp"
#include "comm/agreement.hpp"
#include "comm/memory_limit.hpp"
#include "comm/topology.hpp"

namespace lockstep::app {
namespace {

constexpr double kBatchSeconds = 2e-3;
constexpr std::int64_t kMostSums = 200;
constexpr double kWarmupSeconds = 1;
// Where --repeat does not say how often: a second of each way, 5 to 100 batches; but 3 where 5 take too long.
constexpr double kTimedSeconds = 1, kLongSeconds = 20;
constexpr std::int64_t kFewestBatches = 3, kUsualBatches = 5, kMostBatches = 100;
/// Elements that are filled and checked at a time.
constexpr std::size_t kPiece = std::size_t{1} << 20;

/// Collective: for each of this rank's times, the largest on any rank.
std::vector<double> slowest(comm::Communicator& communicator, const std::vector<double>& own) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all(own.size() * ranks, 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) all[i * ranks + static_cast<std::size_t>(communicator.rank())] = own[i];
  communicator.all_reduce_sum(all);
  std::vector<double> result;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * ranks);
    result.push_back(*std::max_element(first, first + static_cast<std::ptrdiff_t>(ranks)));
  }
  return result;
}

/// Seconds of so many sums on this rank, all ranks starting together.
double time_batch(comm::Communicator& control, Way& way, std::size_t count, std::int64_t sums) {
  control.barrier();
  StopWatch watch;
  way.sum(count, sums);
  return watch.seconds();
}
/// Collective: on the slowest rank.
double slowest_batch(comm::Communicator& control, Way& way, std::size_t count, std::int64_t sums) {
  return slowest(control, {time_batch(control, way, count, sums)}).front();
}

/// Collective: elements of a sum of known terms that came out wrong, on this rank.
std::size_t check_sum(const comm::Communicator& control, Way& way, std::size_t count, const BenchTerms& terms) {
  std::vector<float> values;
  const auto pieces = [&](auto work) {
    for (std::size_t first = 0; first < count; first += kPiece) {
      values.resize(std::min(kPiece, count - first));
      work(first);
    }
  };
  pieces([&](std::size_t first) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = terms.term(first + i, control.rank());
    way.load(first, values);
  });
  way.sum(count, 1);
  std::size_t wrong = 0;
  pieces([&](std::size_t first) {
    way.fetch(first, values);
    wrong += terms.count_wrong(values, first);
  });
  return wrong;
}

/// Collective: warms up; the number of sums that make a batch, and seconds of a batch.
std::pair<std::int64_t, double> prepare(comm::Communicator& control, Way& way, std::size_t count, std::int64_t warmup) {
  // From here on the values grow beyond all bounds, which takes as long as any other addition.
  const auto fits = [](double seconds, double one) { return static_cast<std::int64_t>(seconds / std::max(one, 1e-9)); };
  for (int i = 0; i < way.slow_batches(); ++i) slowest_batch(control, way, count, 1);
  double estimate = slowest_batch(control, way, count, 1);  // the same on every rank
  warmup = std::min(warmup, std::max(fits(kWarmupSeconds, estimate), std::int64_t{1}));
  for (std::int64_t i = 0; i < warmup; ++i) estimate = slowest_batch(control, way, count, 1);
  const std::int64_t sums = std::clamp(fits(kBatchSeconds, estimate), std::int64_t{1}, kMostSums);
  for (int i = 0; i < way.slow_batches(); ++i) slowest_batch(control, way, count, sums);
  return {sums, estimate * static_cast<double>(sums)};
}

/// Of all ways together, each of which takes a batch a round.
std::int64_t rounds_for(double round_seconds, std::size_t ways) {
  const auto fit = [&](double seconds) { return static_cast<std::int64_t>(seconds / std::max(round_seconds, 1e-9)); };
  const std::int64_t least = std::clamp(fit(kLongSeconds), kFewestBatches, kUsualBatches);
  return std::clamp(fit(kTimedSeconds * static_cast<double>(ways)), least, kMostBatches);
}

/// Collective: the largest sum up to `wanted` of which the ranks of every host have room for so many copies each, in
/// half of what is free: nobody asked for so much.
std::int64_t largest_that_fits(comm::Communicator& control, std::int64_t wanted, std::size_t copies) {
  const std::vector<comm::RankPlace> places = comm::gather_topology(control, "");
  const std::string& host = places[static_cast<std::size_t>(control.rank())].host;
  const auto neighbours = static_cast<std::size_t>(
      std::count_if(places.begin(), places.end(), [&](const comm::RankPlace& place) { return place.host == host; }));
  const std::string memory = comm::read_meminfo();
  std::int64_t own = wanted;
  const auto twice = [&] { return 2 * copies * neighbours * static_cast<std::size_t>(own) * sizeof(float); };
  while (own > 1 && !comm::memory_shortage(twice(), 1, memory).empty()) own /= 2;
  for (const std::string& theirs : control.all_gather_text(fmt::format("{}", own))) {
    own = std::min(own, static_cast<std::int64_t>(std::stoll(theirs)));
  }
  return own;
}

std::vector<WayKind> chosen_ways(const BenchAllReduceOptions& options, const comm::Communicator& control,
                                 const Place& place) {
  const bool gpu = place.gpu.has_value();
  if (options.ways == "auto") return usual_ways(control.transport_name(), gpu, options.execution.device);
  std::vector<WayKind> kinds = parse_ways(options.ways);
  if (!gpu && std::find(kinds.begin(), kinds.end(), WayKind::nccl) != kinds.end()) {
    throw comm::AgreedError(
        fmt::format("--ways nccl needs a GPU for every rank{}{}", place.note.empty() ? "" : "; ", place.note));
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

std::vector<AllReduceRow> measure_size(comm::Communicator& control, std::span<const std::unique_ptr<Way>> ways,
                                       std::int64_t elements, const BenchTerms& terms, const Repetitions& repetitions) {
  const auto count = static_cast<std::size_t>(elements);
  control.note_activity("timing sums", -1);  // no steps here
  std::vector<AllReduceRow> rows;
  std::vector<double> wrong;
  for (const auto& way : ways) {
    way->begin_size();
    wrong.push_back(static_cast<double>(check_sum(control, *way, count, terms)));
    rows.push_back({.way = way->name(), .transport = way->transport(), .ranks = control.size(), .count = elements});
    rows.back().wire = way->wire();
  }
  control.all_reduce_sum(wrong);

  double round_seconds = 0;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    rows[i].wrong = std::llround(wrong[i]);
    double batch = 0;
    std::tie(rows[i].sums, batch) = prepare(control, *ways[i], count, repetitions.warmup);
    round_seconds += batch;
  }
  const std::int64_t rounds = repetitions.repeat > 0 ? repetitions.repeat : rounds_for(round_seconds, ways.size());
  std::vector<std::vector<double>> seconds(ways.size());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % ways.size();
      seconds[i].push_back(time_batch(control, *ways[i], count, rows[i].sums) / static_cast<double>(rows[i].sums));
    }
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    rows[i].seconds = percentiles_of(slowest(control, seconds[i]));
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
  throw comm::AgreedError(
      fmt::format("{} of the sums by {} are wrong (see #wrong above): a device, a link or a library computes wrongly",
                  with_commas(wrong), fmt::join(ways_of(guilty), ", ")));
}

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto control = comm::make_communicator(session, {.deadline_seconds = execution.deadline});
  Console console(control->rank() == 0);
  const Place place = find_place(*control, execution);
  if (!place.note.empty()) console.info(place.note);
  if (!control->transport_note().empty()) console.info(control->transport_note());
  const std::vector<WayKind> kinds = chosen_ways(options, *control, place);

  const std::size_t copies = host_copies(kinds);
  std::int64_t max = options.max;
  if (!options.max_given) {
    max = std::max(options.min, largest_that_fits(*control, max, copies));
    if (max < options.max) {
      console.info(fmt::format("memory: room for sums of {} elements and no more (--max)", with_commas(max)));
    }
  }
  require_host_memory(*control, (copies * static_cast<std::size_t>(max) + kPiece) * sizeof(float));
  ResultFile csv(*control, options.csv), json(*control, options.json), svg(*control, options.svg);

  const std::vector<std::string> hosts = control->all_gather_text(session.host());
  const auto host_count = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  const std::optional<LinkBound> bound = options.link_gbps ? link_bound(hosts, *options.link_gbps) : std::nullopt;
  const auto ways = make_ways(session, *control, kinds, place, execution, static_cast<std::size_t>(max));

  const std::string where = fmt::format("{} on {}", counted(control->size(), "rank"), counted(host_count, "host"));
  std::string head = fmt::format("sums over {}, in place; times of the slowest rank, time: the median", where);
  for (const auto& way : ways) head += (way->description().empty() ? "" : "\n") + way->description();
  if (execution.wire != "fp32") {
    std::vector<std::string> narrow;
    for (const auto& way : ways) {
      if (way->wire() != "fp32") narrow.push_back(way->name());
    }
    head += fmt::format("\nwire: {}",
                        narrow.empty() ? "fp32, for want of a way that sends anything"
                                       : fmt::format("{} by {}, else fp32", execution.wire, fmt::join(narrow, ", ")));
  }
  if (bound) head += "\n" + describe(*bound);
  if (options.link_gbps && !bound) head += "\nbound: none, all ranks are on one host and no link is crossed";
  console.info(head + "\n" + format_head(bound.has_value()));
  csv.write(csv_head() + "\n");
  const BenchTerms terms(control->size(), execution.wire == "bf16" ? BenchTerms::Wire::bf16 : BenchTerms::Wire::fp32);

  std::vector<AllReduceRow> all;
  for (const std::int64_t size : bench_sizes(options.min, max, options.factor)) {
    std::vector<AllReduceRow> rows = measure_size(*control, ways, size, terms, options.repetitions);
    for (AllReduceRow& row : rows) {
      row.hosts = host_count;
      row.bound = bound;
      console.info(format_row(row));
      csv.write(csv_row(row) + "\n");
      json.write(json_line(row));
    }
    all.insert(all.end(), rows.begin(), rows.end());
  }
  std::string ending;
  for (const std::string& way : ways_of(all)) {
    ending += fmt::format("\naverage bus bandwidth of {}: {:.3f} GB/s", way, mean_bus_bandwidth(all, way) / 1e9);
  }
  const std::string summary = format_summary(all);
  console.info(ending.substr(1) + (summary.empty() ? "" : "\n\n" + summary));
  svg.write(to_svg(bandwidth_chart(all, where + ", float32, in place; median of the slowest rank's times")));
  require_right(all);
  return 0;
}

}  // namespace lockstep::app
