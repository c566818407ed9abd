#include "app/bench/bench_input.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "app/bench/rank_values.hpp"
#include "app/engine/file_watch.hpp"
#include "app/place/placement.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/report/statistics.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"
#include "comm/survey/topology.hpp"
#include "io/datasets/prefetcher.hpp"
#include "io/files/raw_reader.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

constexpr double kPartBytes = 256.0 * 1024 * 1024;  ///< largest size of a part over all ranks
constexpr double kPartSeconds = 2;                  ///< longest time of a part, about
constexpr double kTrialSeconds = 0.05;              ///< least time that tells how long a step takes
constexpr double kNoStall = 0.02;                   ///< a smaller share of waiting is no bottleneck
constexpr double kLoaderLimits = 0.7;  ///< share of the speed of raw reads; below it the loader is the bottleneck

/// Keeps the core busy like a computation that competes with reading.
void compute_for(double seconds) {
  const StopWatch watch;
  while (watch.seconds() < seconds) {
  }
}

struct PartTime {
  double seconds = 0, stall = 0;
};

/// A way of reading and the times of its parts on this rank.
struct InputPath {
  std::string name;
  std::function<PartTime(std::int64_t part)> read;
  std::vector<PartTime> parts = {};
};

/// Reads a job's data, part by part.
class InputBench {
 public:
  InputBench(comm::Communicator& communicator, const Workload& workload, const BenchInputOptions& options)
      : communicator_(communicator), workload_(workload), options_(options), raw_(files_of(*workload.training)) {
    set_steps(options.steps > 0 ? options.steps : 1);
  }

  /// Collective. Unless the user gives --steps, sets them to those of kPartBytes or kPartSeconds, whichever are fewer.
  void choose_steps() {
    if (options_.steps > 0) return;
    std::int64_t most = std::max<std::int64_t>(1, std::llround(kPartBytes / std::max(1.0, bytes_)));
    if (options_.cold) most = std::min(most, workload_.work.steps_per_epoch);
    for (;;) {
      if (options_.cold) raw_.forget();
      PartTime time;
      comm::all_succeed(communicator_, [&] { time = read_in_training_order(0, 1e-3 * options_.compute_ms); });
      const double slowest = largest_over_ranks(communicator_, std::span(&time.seconds, 1))[0];
      const bool is_trial = slowest < kTrialSeconds && steps_ < most;
      const double wanted = is_trial ? 2 * static_cast<double>(steps_)
                                     : static_cast<double>(steps_) * kPartSeconds / std::max(slowest, 1e-9);
      set_steps(std::clamp<std::int64_t>(std::llround(std::min(wanted, static_cast<double>(most))), 1, most));
      if (!is_trial) return;
    }
  }

  std::int64_t steps() const noexcept { return steps_; }
  double bytes() const noexcept { return bytes_; }
  io::RawReader& raw() noexcept { return raw_; }

  /// Collective: measures all parts of all ways of reading; the ways take turns.
  void measure(std::vector<InputPath>& paths) {
    for (std::int64_t part = 0; part < options_.repeat; ++part) {
      for (InputPath& path : paths) {
        if (options_.cold) raw_.forget();
        communicator_.barrier();
        communicator_.wait();
        PartTime time;
        comm::all_succeed(communicator_, [&] { time = path.read(part); });
        path.parts.push_back(time);
      }
    }
  }

  /// Reads this rank's share of the same bytes sequentially.
  PartTime read_raw(std::int64_t part) {
    const auto ranks = static_cast<std::uint64_t>(communicator_.size());
    const auto share = static_cast<std::uint64_t>(bytes_) / ranks;
    const std::uint64_t first = raw_.bytes() / ranks * static_cast<std::uint64_t>(communicator_.rank());
    const StopWatch watch;
    raw_.read(first + static_cast<std::uint64_t>(part) * share, share);
    return {.seconds = watch.seconds(), .stall = 0};
  }

  /// Reads like training, with a new reader for each part; each part has its own epoch.
  PartTime read_in_training_order(std::int64_t part, double compute_seconds) {
    io::PrefetcherOptions input = reading(workload_, communicator_.rank(), communicator_.size());
    input.first_epoch = part * (1 + steps_ / workload_.work.steps_per_epoch);
    const StopWatch watch;
    io::Prefetcher prefetcher(*workload_.training, input);
    for (std::int64_t batch = 0; batch < steps_ * workload_.work.accumulate; ++batch) {
      prefetcher.next();
      if (compute_seconds > 0) compute_for(compute_seconds);
    }
    return {.seconds = watch.seconds(), .stall = prefetcher.stall_seconds()};
  }

  /// Collective.
  InputRow row(const InputPath& path) {
    const auto ranks = static_cast<std::size_t>(communicator_.size());
    std::vector<double> own;
    double stall = 0;
    for (const PartTime& part : path.parts) {
      own.push_back(part.seconds);
      stall += part.stall;
    }
    const double total = std::accumulate(own.begin(), own.end(), 0.0);
    const std::vector<double> seconds = gather_values(communicator_, own);
    double share = total > 0 ? stall / total : 0;
    communicator_.all_reduce(std::span(&share, 1));
    communicator_.wait();

    InputRow row{.way = path.name,
                 .ranks = communicator_.size(),
                 .samples = samples_,
                 .bytes = bytes_,
                 .stall = share / static_cast<double>(ranks)};
    std::vector<double> slowest_of_parts, of_ranks;
    for (auto part = seconds.begin(); part != seconds.end(); part += communicator_.size()) {
      slowest_of_parts.push_back(*std::max_element(part, part + communicator_.size()));
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<double> of_rank;
      for (std::size_t at = rank; at < seconds.size(); at += ranks) of_rank.push_back(seconds[at]);
      of_ranks.push_back(median(of_rank));
    }
    row.seconds = median(slowest_of_parts);
    row.quickest_part = *std::min_element(slowest_of_parts.begin(), slowest_of_parts.end());
    row.slowest_part = *std::max_element(slowest_of_parts.begin(), slowest_of_parts.end());
    const auto slowest = std::max_element(of_ranks.begin(), of_ranks.end());
    row.slowest = static_cast<int>(slowest - of_ranks.begin());
    row.slowest_rank = *slowest;
    row.quickest_rank = *std::min_element(of_ranks.begin(), of_ranks.end());
    return row;
  }

 private:
  void set_steps(std::int64_t steps) {
    steps_ = steps;
    // The last step of an epoch may be smaller than the others.
    const auto epochs = static_cast<double>(steps_ / workload_.work.steps_per_epoch);
    const auto rest = static_cast<double>(steps_ % workload_.work.steps_per_epoch);
    samples_ = epochs * static_cast<double>(workload_.work.epoch_samples) +
               rest * static_cast<double>(workload_.work.global_batch);
    bytes_ = samples_ * static_cast<double>(raw_.bytes()) / static_cast<double>(workload_.training->info().samples);
  }

  static std::vector<std::filesystem::path> files_of(const io::Dataset& dataset) {
    std::vector<std::filesystem::path> files;
    for (const io::ShardInfo& shard : dataset.shards()) files.push_back(shard.file);
    return files;
  }

  comm::Communicator& communicator_;
  const Workload& workload_;
  const BenchInputOptions& options_;
  io::RawReader raw_;
  std::int64_t steps_ = 0;
  double samples_ = 0, bytes_ = 0;
};

double megabytes(double bytes) { return bytes / 1e6; }

/// Bytes/s of a rank that needed `seconds` for its share.
double of_rank(const InputRow& row, double seconds) {
  return seconds > 0 ? row.bytes / static_cast<double>(row.ranks) / seconds : 0;
}

std::string cache_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} % of the files in memory", 100 * *share)
               : std::string("what the page cache holds is not known here");
}

/// True for raw reads: they ignore the order of training, so no rank waits for a batch.
bool is_raw(const InputRow& row) { return row.way.starts_with("raw"); }

io::MetricRecord to_record(const InputRow& row, std::int64_t global_batch, const std::optional<double>& cached) {
  return {{"bench", "input"},
          {"way", row.way},
          {"world", row.ranks},
          {"global_batch", global_batch},
          {"samples", row.samples},
          {"bytes", row.bytes},
          {"seconds", row.seconds},
          {"seconds_min", row.quickest_part},
          {"seconds_max", row.slowest_part},
          {"samples_per_second", row.samples_per_second()},
          {"bytes_per_second", row.bytes_per_second()},
          {"slowest_rank", static_cast<std::int64_t>(row.slowest)},
          {"stall_share", is_raw(row) ? kNotKnown : row.stall},
          {"cached_share", cached.value_or(kNotKnown)}};
}

}  // namespace

std::string format_input_head() {
  return fmt::format("{:<34}{:>14}{:>10}{:>10}{:>10}{:>9}{:>9}\n{:<34}{:>14}{:>10}{:>10}{:>10}{:>9}{:>9}", "",
                     "all ranks", "", "slowest", "quickest", "parts", "waiting", "way", "(samples/s)", "(MB/s)", "rank",
                     "(MB/s)", "(+-)", "");
}

std::string format_input_row(const InputRow& row) {
  const double spread = row.seconds > 0 ? (row.slowest_part - row.quickest_part) / 2 / row.seconds : 0;
  return fmt::format("{:<34}{:>14}{:>10.1f}{:>10.1f}{:>10.1f}{:>7.0f} %{:>9}", row.way,
                     with_commas(std::llround(row.samples_per_second())), megabytes(row.bytes_per_second()),
                     megabytes(of_rank(row, row.slowest_rank)), megabytes(of_rank(row, row.quickest_rank)),
                     100 * spread, is_raw(row) ? "-" : fmt::format("{:.1f} %", 100 * row.stall));
}

std::string input_csv_head() {
  return "way,ranks,samples,bytes,seconds,seconds_min,seconds_max,samples_per_s,mb_per_s,slowest_rank,"
         "slowest_rank_mb_per_s,quickest_rank_mb_per_s,stall_share";
}

std::string input_csv_row(const InputRow& row) {
  return fmt::format("{},{},{:.0f},{:.0f},{:.6f},{:.6f},{:.6f},{:.1f},{:.3f},{},{:.3f},{:.3f},{}", row.way, row.ranks,
                     row.samples, row.bytes, row.seconds, row.quickest_part, row.slowest_part, row.samples_per_second(),
                     megabytes(row.bytes_per_second()), row.slowest, megabytes(of_rank(row, row.slowest_rank)),
                     megabytes(of_rank(row, row.quickest_rank)),
                     is_raw(row) ? std::string() : fmt::format("{:.6f}", row.stall));
}

std::string input_verdict(const InputRow& raw, const InputRow& training, const InputRow* computing, double compute_ms,
                          double batches, bool cached) {
  const double share = raw.seconds > 0 && training.seconds > 0 ? raw.seconds / training.seconds : 0;
  std::string text = fmt::format(
      "Training order reaches {:.0f} % of raw reads{}: what limits it is {}.\n", 100 * share,
      cached ? " of files that are in memory" : "",
      share < kLoaderLimits ? "the picking of samples (one thread a rank), not the files" : "the files themselves");
  const double each = batches > 0 ? 1e3 * training.seconds / batches : 0;
  text += fmt::format(
      "A job waits for input that computes less than {:.3g} ms a batch, above {} samples/s in all ({} a "
      "rank).",
      each, with_commas(std::llround(training.samples_per_second())),
      with_commas(std::llround(training.samples_per_second() / static_cast<double>(training.ranks))));
  if (computing == nullptr) return text;
  const bool waits = computing->stall >= kNoStall;
  text +=
      fmt::format("\nWith {:.3g} ms of computing a batch, ranks wait {:.1f} % of the time: input {} the bottleneck{}.",
                  compute_ms, 100 * computing->stall, waits ? "is" : "is not",
                  waits && compute_ms > each ? ", for the reading thread has to share a core with computing" : "");
  return text;
}

int run_bench_input(comm::MpiSession& session, const BenchInputOptions& options) {
  const ExecutionOptions& execution = options.train.execution;
  const auto communicator = communicator_of(session, execution);
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  ResultFile csv(*communicator, options.csv, &io_deadline);
  RecordFile json(*communicator, options.json, &io_deadline);
  const Workload workload = open_workload(*communicator, options.train, &io_deadline);
  comm::require_equal(*communicator, std::vector<comm::FingerprintItem>{{"data", workload.training->fingerprint()}});
  communicator->note_activity("reading the data", -1);

  std::unique_ptr<InputBench> bench;
  comm::all_succeed(*communicator, [&] { bench = std::make_unique<InputBench>(*communicator, workload, options); });
  std::vector<InputPath> paths;
  paths.push_back({.name = "raw reads", .read = [&](std::int64_t part) { return bench->read_raw(part); }});
  paths.push_back(
      {.name = "training order", .read = [&](std::int64_t part) { return bench->read_in_training_order(part, 0); }});
  if (options.compute_ms > 0) {
    paths.push_back(
        {.name = fmt::format("training order + {:g} ms a batch", options.compute_ms),
         .read = [&](std::int64_t part) { return bench->read_in_training_order(part, 1e-3 * options.compute_ms); }});
  }

  const std::optional<double> before = bench->raw().cached_share();
  bench->choose_steps();
  const io::DatasetInfo& info = workload.training->info();
  const auto batches = static_cast<double>(bench->steps() * workload.work.accumulate);
  console.info(fmt::format("{}: {} in {}, {}; {}, {} of {}; {} of {} ({}) for each way, in turn",
                           workload.paths.training.string(), counted(info.samples, "sample"),
                           counted(workload.training->shards().size(), "file"), format_bytes(bench->raw().bytes()),
                           counted(communicator->size(), "rank"), "global batches",
                           with_commas(workload.work.global_batch), counted(options.repeat, "part"),
                           counted(bench->steps(), "step"), format_bytes(bench->bytes())));
  std::optional<double> cached = before;
  if (options.cold) {
    bench->raw().forget();
    cached = bench->raw().cached_share();
  }
  console.info(fmt::format("page cache on {}: {} at the start{}", session.host(), cache_text(before),
                           options.cold
                               ? fmt::format("; {} when asked to forget them, as before each part", cache_text(cached))
                               : std::string()));
  if (options.cold && cached.value_or(0) > 0.05) {
    console.warn(
        "--cold: the system keeps the files in memory (a file system in memory, data not written yet, or "
        "files that another process has mapped): these are not cold reads");
  }
  bench->measure(paths);
  // Measured again: the first part may have filled the page cache.
  if (!options.cold) cached = bench->raw().cached_share();

  console.info(format_input_head());
  csv.write(input_csv_head() + "\n");
  std::vector<InputRow> rows;
  for (const InputPath& path : paths) {
    rows.push_back(bench->row(path));
    console.info(format_input_row(rows.back()));
    csv.write(input_csv_row(rows.back()) + "\n");
    json.write(to_record(rows.back(), workload.work.global_batch, cached));
  }
  const std::vector<comm::RankPlace> places = comm::gather_topology(*communicator, "");
  const InputRow& training = rows[1];
  console.info("\n" + input_verdict(rows[0], training, rows.size() > 2 ? &rows[2] : nullptr, options.compute_ms,
                                    batches, cached.value_or(0) > 0.95));
  if (training.quickest_rank < 0.7 * training.slowest_rank) {
    console.info(fmt::format("The slowest is rank {} on {}: {:.1f} MB/s where the quickest reads {:.1f}.",
                             training.slowest, places[training.slowest].host,
                             megabytes(of_rank(training, training.slowest_rank)),
                             megabytes(of_rank(training, training.quickest_rank))));
  }
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
