#include "app/bench/bench_checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>

#include "app/bench/rank_values.hpp"
#include "app/bench/scratch_folder.hpp"
#include "app/bench/timed_steps.hpp"
#include "app/engine/checkpointer.hpp"
#include "app/engine/file_watch.hpp"
#include "app/options/train_options.hpp"
#include "app/place/placement.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/report/statistics.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

constexpr double kGigabyte = 1e9;

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }
double most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

/// The steps whose state is saved: of the named network, or of a linear network with a state of the requested size.
StepWork work_of(const BenchCheckpointOptions& options) {
  StepWork work = options.work;
  if (options.state_mb == 0) return work;
  const model::OptimizerOptions& optimizer = work.train.optimizer;
  const int groups = 1 + model::state_count(optimizer.kind) + (optimizer.average_decay > 0 ? 1 : 0);
  const double parameters = static_cast<double>(options.state_mb) * 1e6 / (sizeof(float) * groups);
  work.train.network = {.name = "linear"};
  work.features = work.outputs = std::max<std::int64_t>(1, std::llround(std::sqrt(parameters)));
  work.image.reset();
  work.regression = true;
  return work;
}

class CheckpointBench {
 public:
  CheckpointBench(comm::Communicator& communicator, TimedSteps& steps, const fs::path& folder, int writers,
                  io::IoDeadline& deadline)
      : communicator_(communicator),
        steps_(steps),
        folder_(folder),
        writers_(writers),
        deadline_(deadline),
        checkpointer_(steps.engine().checkpointer_context(steps.workload().work, writers)) {
    comm::all_succeed(communicator, [&] { checkpointer_.open({.folder = folder, .keep = 1}, &deadline); });
  }

  double bytes() {
    const model::ParameterState& parameters = steps_.engine().training().parameters;
    return static_cast<double>(parameters.state_groups().size() * parameters.elements() * sizeof(float));
  }

  /// Collective: writes and flushes the bytes of a checkpoint with plain writes, on as many ranks. Returns the seconds
  /// of the slowest rank.
  double write_plainly() {
    double seconds = 0;
    communicator_.barrier();
    communicator_.wait();
    comm::all_succeed(communicator_, [&] {
      if (communicator_.rank() >= writers_) return;
      const comm::LongOperation writing(communicator_, "writing plainly");
      const fs::path file = folder_ / fmt::format("plain-{}", communicator_.rank());
      const std::string piece(std::size_t{1} << 20, 'x');
      const io::IoDeadline::Operation watched(&deadline_, io::IoDeadline::Kind::writing, file,
                                              io::IoDeadline::seconds_for(static_cast<std::uint64_t>(bytes())));
      const StopWatch watch;
      {
        const io::Descriptor descriptor = io::open_file(file, O_WRONLY | O_CREAT | O_TRUNC, "create");
        for (auto left = static_cast<std::size_t>(bytes() / writers_); left > 0; left -= std::min(left, piece.size())) {
          io::write_all(descriptor, std::string_view(piece).substr(0, std::min(left, piece.size())), file);
        }
      }
      io::sync_file(file);
      seconds = watch.seconds();
      fs::remove(file);
    });
    return largest_over_ranks(communicator_, std::span(&seconds, 1)).front();
  }

  /// Collective: writes a checkpoint and makes steps until it is complete. Appends the duration of each step to
  /// `beside`.
  WrittenCheckpoint write_beside_steps(std::vector<double>& beside) {
    io::TrainingRecord record;
    record.step = ++number_;
    checkpointer_.take();
    comm::all_succeed(communicator_, [&] { checkpointer_.write(record); });
    WrittenCheckpoint written;
    for (double done = 0; done == 0;) {
      beside.push_back(steps_.step().total);
      checkpointer_.advance();
      comm::all_succeed(communicator_, [&] {
        if (const std::optional<WrittenCheckpoint> finished = checkpointer_.poll()) {
          written = *finished;
          done = 1;
        }
      });
      communicator_.all_reduce(std::span(&done, 1));
      communicator_.wait();
    }
    return written;
  }

 private:
  comm::Communicator& communicator_;
  TimedSteps& steps_;
  const fs::path& folder_;
  int writers_;
  io::IoDeadline& deadline_;
  Checkpointer checkpointer_;
  std::int64_t number_ = 0;
};

io::MetricRecord to_record(const CheckpointRow& row) {
  return {{"bench", "checkpoint"},
          {"way", row.way},
          {"world", static_cast<std::int64_t>(row.ranks)},
          {"writers", static_cast<std::int64_t>(row.writers)},
          {"bytes", row.bytes},
          {"seconds", median(row.seconds)},
          {"seconds_min", least(row.seconds)},
          {"seconds_max", most(row.seconds)},
          {"bytes_per_second", row.bytes / median(row.seconds)},
          {"stall_seconds", row.stall.empty() ? kNotKnown : median(row.stall)},
          {"stall_seconds_max", row.stall.empty() ? kNotKnown : most(row.stall)}};
}

}  // namespace

std::string format_checkpoint_head() {
  return fmt::format("{:<32}{:>10}{:>10}{:>10}{:>10}{:>14}{:>14}", "", "safe (s)", "quickest", "slowest", "(GB/s)",
                     "stall (s)", "stall (s/GB)");
}

std::string format_checkpoint_row(const CheckpointRow& row) {
  const double gigabytes = row.bytes / kGigabyte;
  const std::string stall = row.stall.empty()
                                ? fmt::format("{:>14}{:>14}", "-", "-")
                                : fmt::format("{:>14.4f}{:>14.4f}", median(row.stall), median(row.stall) / gigabytes);
  return fmt::format("{:<32}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.3f}{}", row.way, median(row.seconds), least(row.seconds),
                     most(row.seconds), gigabytes / median(row.seconds), stall);
}

std::string checkpoint_csv_head() {
  return "way,ranks,writers,bytes,seconds,seconds_min,seconds_max,gb_per_s,stall_s,stall_s_max,stall_s_per_gb";
}

std::string checkpoint_csv_row(const CheckpointRow& row) {
  const std::string stall = row.stall.empty() ? ",,"
                                              : fmt::format("{:.6f},{:.6f},{:.6f}", median(row.stall), most(row.stall),
                                                            median(row.stall) / (row.bytes / kGigabyte));
  return fmt::format("{},{},{},{:.0f},{:.6f},{:.6f},{:.6f},{:.4f},{}", row.way, row.ranks, row.writers, row.bytes,
                     median(row.seconds), least(row.seconds), most(row.seconds),
                     row.bytes / kGigabyte / median(row.seconds), stall);
}

int run_bench_checkpoint(comm::MpiSession& session, const BenchCheckpointOptions& options) {
  const StepWork work = work_of(options);
  const ExecutionOptions& execution = work.train.execution;
  const auto communicator = comm::make_communicator(session, communicator_options(execution));
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  ResultFile csv(*communicator, options.csv, &io_deadline);
  RecordFile json(*communicator, options.json, &io_deadline);
  const Place place = find_place(*communicator, execution);
  TimedSteps steps(session, *communicator, place, work, io_deadline);
  const ScratchFolder folder(*communicator, options.folder, "lockstep-bench-checkpoint", io_deadline);
  const int writers = steps.plan().checkpoint_writers;
  CheckpointBench bench(*communicator, steps, folder.path(), writers, io_deadline);
  console.info(fmt::format("{} of state ({}, {}) in {}; {}; {} of each, in turn", format_bytes(bench.bytes()),
                           steps.workload().network->signature(), model::name_of(work.train.optimizer.kind),
                           folder.path().parent_path().string(),
                           counted(communicator->size(), "rank") + ", " + counted(writers, "writer"), options.repeat));

  constexpr int kStepsAlone = 5;
  CheckpointRow plain{.way = "write and fsync",
                      .ranks = communicator->size(),
                      .writers = writers,
                      .bytes = bench.bytes(),
                      .seconds = {},
                      .stall = {}};
  CheckpointRow ours{.way = "checkpoint beside steps",
                     .ranks = communicator->size(),
                     .bytes = bench.bytes(),
                     .seconds = {},
                     .stall = {}};
  std::vector<double> alone, beside;
  steps.step();
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    plain.seconds.push_back(bench.write_plainly());
    for (int step = 0; step < kStepsAlone; ++step) alone.push_back(steps.step().total);
    const WrittenCheckpoint written = bench.write_beside_steps(beside);
    ours.seconds.push_back(written.seconds);
    ours.stall.push_back(written.stall);
  }
  console.info(format_checkpoint_head());
  csv.write(checkpoint_csv_head() + "\n");
  for (const CheckpointRow& row : {plain, ours}) {
    if (console.speaks()) console.info(format_checkpoint_row(row));
    csv.write(console.speaks() ? checkpoint_csv_row(row) + "\n" : "");
    json.write(console.speaks() ? to_record(row) : io::MetricRecord{});
  }
  if (console.speaks()) {
    console.info(fmt::format("\nA step takes {:.3f} ms alone and {:.3f} ms beside a checkpoint ({} and {}).",
                             1e3 * median(alone), 1e3 * median(beside), counted(alone.size(), "step"),
                             counted(beside.size(), "step")));
  }
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
