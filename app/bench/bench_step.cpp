#include "app/bench/bench_step.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include "app/bench/random_values.hpp"
#include "app/bench/rank_values.hpp"
#include "app/bench/timed_steps.hpp"
#include "app/engine/file_watch.hpp"
#include "app/options/choices.hpp"
#include "app/place/placement.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "app/report/statistics.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/runs/metrics_log.hpp"
#include "model/loaded_libraries.hpp"

namespace lockstep::app {

namespace {

/// Rows and columns of the matrices of the roofline's GEMM: enough to use the whole device.
std::int64_t roof_size(const model::Backend& backend) { return backend.is_host() ? 1024 : 8192; }

/// Measures the FLOP/s of a GEMM of such matrices on this backend: an upper bound for the GEMMs of a step.
double measure_roof(model::Backend& backend) {
  constexpr std::int64_t kTileRows = 128;  // rows made on the host; the device repeats them
  const std::int64_t n = roof_size(backend);
  const std::size_t matrix_bytes = static_cast<std::size_t>(n * n) * size_of(backend.compute_type());
  std::vector<float> values(static_cast<std::size_t>(kTileRows * n));
  fill_random(values, 0);
  std::array<model::Tensor, 3> matrices;
  for (model::Tensor& matrix : matrices) {
    matrix = {backend.memory()->allocate(matrix_bytes, 256), backend.compute_type(), n, n};
  }
  backend.upload(values, matrices[0].row_range(0, kTileRows));
  for (std::int64_t row = kTileRows; row < n; row += kTileRows) {
    backend.cast(matrices[0].row_range(0, kTileRows), matrices[0].row_range(row, kTileRows));
  }
  backend.cast(matrices[0], matrices[1]);
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    backend.synchronize();
    StopWatch watch;
    backend.mark_begin();
    backend.linear_forward(matrices[0], matrices[1], {}, model::Activation::none, matrices[2]);
    backend.mark_end();
    backend.synchronize();
    const double on_device = backend.device_seconds();
    seconds.push_back(on_device < 0 ? watch.seconds() : on_device);
  }
  for (const model::Tensor& matrix : matrices) backend.memory()->deallocate(matrix.data, matrix_bytes, 256);
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / median(seconds);
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Collective: times `count` steps on this rank.
std::vector<RankStep> time_steps(TimedSteps& bench, std::int64_t count) {
  std::vector<RankStep> steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(bench.step());
  return steps;
}

std::vector<double> totals(const std::vector<RankStep>& steps) {
  std::vector<double> seconds;
  for (const RankStep& step : steps) seconds.push_back(step.total);
  return seconds;
}

/// Number and sizes of the buckets of gradients: "3 (256 KiB to 4.0 MiB)".
std::string describe_buckets(std::span<const comm::Slice> buckets) {
  const auto [least, most] = std::minmax_element(
      buckets.begin(), buckets.end(), [](const comm::Slice& a, const comm::Slice& b) { return a.count < b.count; });
  const auto bytes = [](const comm::Slice& bucket) { return format_bytes(bucket.count * sizeof(float)); };
  return fmt::format("{} ({}{})", counted(buckets.size(), "bucket"), bytes(*least),
                     least->count == most->count ? "" : fmt::format(" to {}", bytes(*most)));
}

/// Results for one bucket size.
struct BucketTrial {
  std::int64_t size = 0;  ///< elements per bucket; 0: as the rule chooses
  std::vector<comm::Slice> buckets;
  std::vector<double> seconds, exposed;  ///< median over the steps, for each round
};

/// Makes trials of the rule, and of sizes from one bucket for everything down to kMinBucket elements. Sizes that cut
/// the gradients into the same buckets have one trial.
std::vector<BucketTrial> bucket_trials(const model::Network& network, const Place& place,
                                       const comm::Communicator& communicator) {
  constexpr std::int64_t kMinBucket = 64 * 1024, kFactor = 4;
  std::vector<std::int64_t> sizes{0};
  const std::vector<std::size_t>& slice_ends = network.parameters().slice_ends();
  const auto all = static_cast<std::int64_t>(slice_ends.back());
  sizes.push_back(all);
  std::int64_t size = kMinBucket;
  while (size * kFactor < all) size *= kFactor;
  for (; size >= kMinBucket; size /= kFactor) sizes.push_back(size);
  std::vector<BucketTrial> trials;
  for (const std::int64_t one : sizes) {
    BucketTrial trial{
        .size = one, .buckets = bucket_rule(one, place, communicator).cut(slice_ends), .seconds = {}, .exposed = {}};
    const bool known = std::any_of(trials.begin(), trials.end(),
                                   [&](const BucketTrial& other) { return other.buckets == trial.buckets; });
    if (!known) trials.push_back(std::move(trial));
  }
  return trials;
}

/// Collective. Makes steps with the buckets of every trial; the trials take turns.
void sweep(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
           const BenchStepOptions& options, io::IoDeadline& deadline, std::vector<BucketTrial>& trials) {
  constexpr std::int64_t kRounds = 5;
  for (std::int64_t round = 0; round < kRounds; ++round) {
    for (BucketTrial& trial : trials) {
      StepWork work = options.work;
      work.train.execution.bucket_size = trial.size;
      TimedSteps bench(session, communicator, place, work, deadline);
      time_steps(bench, options.warmup);
      communicator.barrier();
      communicator.wait();
      const std::vector<RankStep> steps = time_steps(bench, std::max<std::int64_t>(1, options.repeat / kRounds));
      trial.seconds.push_back(median(totals(steps)));
      std::vector<double> exposed;
      for (const RankStep& step : steps) exposed.push_back(step.exposed);
      trial.exposed.push_back(median(exposed));
    }
  }
  for (BucketTrial& trial : trials) {
    trial.seconds = largest_over_ranks(communicator, trial.seconds);
    trial.exposed = largest_over_ranks(communicator, trial.exposed);
  }
}

void show_sweep(Console& console, RecordFile& json, const std::vector<BucketTrial>& trials, int ranks) {
  console.info(fmt::format("\n{:>16}{:>10}{:>16}{:>12}{:>14}", "bucket size", "buckets", "largest", "step (ms)",
                           "exposed (ms)"));
  const BucketTrial* best = nullptr;
  for (const BucketTrial& trial : trials) {
    const double seconds = median(trial.seconds);
    if (best == nullptr || seconds < median(best->seconds)) best = &trial;
    std::size_t largest = 0;
    for (const comm::Slice& bucket : trial.buckets) largest = std::max(largest, bucket.count);
    console.info(fmt::format("{:>16}{:>10}{:>16}{:>12.4f}{:>14.4f}",
                             trial.size == 0 ? "by the rule" : with_commas(trial.size), trial.buckets.size(),
                             with_commas(largest), 1e3 * seconds, 1e3 * median(trial.exposed)));
    json.write({{"bench", "step-buckets"},
                {"world", ranks},
                {"bucket_size", trial.size},
                {"buckets", static_cast<std::int64_t>(trial.buckets.size())},
                {"largest_bucket", static_cast<std::int64_t>(largest)},
                {"step_ms", 1e3 * seconds},
                {"exposed_ms", 1e3 * median(trial.exposed)}});
  }
  const BucketTrial& rule = trials.front();
  if (best == &rule) {
    console.info("the rule's buckets are the best of these");
  } else {
    console.info(fmt::format("the rule's step takes {:.1f} % longer than with --bucket-size {}, the best of these",
                             100 * (median(rule.seconds) / median(best->seconds) - 1), best->size));
  }
}

/// The result of the timed steps, on this rank unless stated otherwise.
struct StepTiming {
  std::vector<double> seconds;          ///< duration of each step
  TimeSplit split;                      ///< times of all steps
  StepShare share;                      ///< parts of a step, over all ranks
  double samples_per_step = 0;          ///< samples of all ranks
  std::optional<double> communication;  ///< seconds per step, exposed or not, if known
  double flops = 0;                     ///< FLOPs of a step
  std::optional<double> roof;           ///< FLOP/s of a large GEMM, if requested
  double peak_bytes = 0;                ///< resident memory
  model::DevicePeak peak;               ///< 0 FLOP/s: unknown
  double typical() const { return median(seconds); }
  double quickest() const { return *std::min_element(seconds.begin(), seconds.end()); }
  /// Seconds of a step at the speed of the roof; NaN if that is unknown.
  double fastest_possible() const { return flops / roof.value_or(kNotKnown); }
  /// Share of the device's peak; NaN if that is unknown.
  double utilisation() const { return flops / typical() / peak_flops(); }
  double peak_flops() const { return peak.flops > 0 ? peak.flops : kNotKnown; }
};

/// Collective.
StepTiming measure(TimedSteps& bench, comm::Communicator& communicator, const Place& place,
                   const BenchStepOptions& options) {
  time_steps(bench, options.warmup);
  communicator.barrier();
  communicator.wait();
  const auto count = static_cast<double>(options.repeat);
  const TimeSplit before = bench.time();
  const double samples_before = bench.samples(), communication_before = bench.communication_seconds();
  const std::vector<RankStep> steps = time_steps(bench, options.repeat);
  StepTiming result;
  result.seconds = totals(steps);
  result.split = bench.time() - before;
  result.samples_per_step = (bench.samples() - samples_before) / count;
  if (communication_before >= 0) result.communication = (bench.communication_seconds() - communication_before) / count;
  result.peak_bytes = peak_resident_bytes();
  result.share = split(bench.gather(steps));
  if (options.roof) {
    communicator.barrier();
    communicator.wait();
    result.roof =
        measure_roof(bench.engine().backend());  // on all ranks at once, because they share the machine in a step, too
  }
  for (const model::LayerPlan& layer : bench.workload().network->plan()) {
    result.flops += (layer.forward_flops + layer.backward_flops) * result.samples_per_step / communicator.size();
  }
  if (place.gpu) result.peak = model::peak_of(*place.gpu, place.precision);
  return result;
}

void show(Console& console, const StepTiming& result, TimedSteps& bench, const std::string& bucket_rule,
          const BenchStepOptions& options, int ranks) {
  Engine& engine = bench.engine();
  const model::Network& network = *bench.workload().network;
  const TimeSplit& split = result.split;
  const double typical = result.typical();
  for (const std::string& note : engine.backend().notes()) console.warn(note);
  console.info(fmt::format(
      "{}\n{}, {}, {} samples per step, {} steps after {} to warm up, input: {}", engine.description(),
      counted(ranks, "rank"), comm::name_of(engine.gradient_communicator().transport()),
      with_commas(bench.workload().work.global_batch), options.repeat, options.warmup, word_of(options.work.input)));
  if (const auto libraries = model::loaded_gpu_libraries(); !libraries.empty()) {
    console.info(fmt::format("libraries  {}", fmt::join(libraries, ", ")));
  }
  console.info(fmt::format("step       {:.4f} ms median, {:.4f} ms quickest", 1e3 * typical, 1e3 * result.quickest()));
  const std::int64_t tokens = network.sample_shape().tokens ? network.positions() : 1;
  const double rows = result.samples_per_step * static_cast<double>(tokens);
  console.info(fmt::format("rate       {} {}/s at the median, {} on the whole",
                           with_commas(std::llround(rows / typical)),
                           network.sample_shape().tokens ? "tokens" : "samples",
                           with_commas(std::llround(rows * static_cast<double>(options.repeat) / split.total))));
  const auto percent = [&](double part) { return fmt::format("{:.1f} %", 100 * part / split.total); };
  console.info(fmt::format("time       compute {}  exposed communication {}  input {}  host {}", percent(split.compute),
                           percent(split.communication), percent(split.input), percent(split.other())));
  if (ranks > 1) {
    console.info(
        fmt::format("all-reduce {}{:.4f} ms of it exposed; all ranks: {:.4f} ms, and {:.4f} ms wait for the slowest",
                    result.communication ? fmt::format("{:.4f} ms per step in all, ", 1e3 * *result.communication) : "",
                    1e3 * split.communication / static_cast<double>(options.repeat), 1e3 * result.share.communication,
                    1e3 * result.share.waiting));
    console.info(fmt::format("buckets    {}, {}", describe_buckets(engine.buckets()), bucket_rule));
  }
  if (result.roof) {
    console.info(fmt::format(
        "roofline   {:.4f} ms per step: {} per rank at {}/s (GEMM of {} rows and columns in {} on every rank "
        "at once); {:.0f} % of it reached",
        1e3 * result.fastest_possible(), format_flops(result.flops), format_flops(*result.roof),
        with_commas(roof_size(engine.backend())), model::name_of(bench.plan().place.precision),
        100 * result.fastest_possible() / typical));
  }
  if (result.peak.flops > 0) {
    console.info(fmt::format("MFU        {:.1f} % of {}/s per rank ({})", 100 * result.utilisation(),
                             format_flops(result.peak.flops), result.peak.source));
  }
  console.info(fmt::format("memory     {} resident at the peak (rank 0)", format_bytes(result.peak_bytes)));
}

io::MetricRecord to_record(const StepTiming& result, TimedSteps& bench, const Place& place,
                           const std::string& bucket_rule, const BenchStepOptions& options, int ranks) {
  Engine& engine = bench.engine();
  const model::Network& network = *bench.workload().network;
  const TimeSplit& split = result.split;
  const double rate = result.samples_per_step / result.typical();
  std::vector<std::size_t> bucket_sizes;
  for (const comm::Slice& bucket : engine.buckets()) bucket_sizes.push_back(bucket.count);
  return {{"bench", "step"},
          {"world", ranks},
          {"transport", std::string(comm::name_of(engine.gradient_communicator().transport()))},
          {"backend", std::string(engine.backend().name())},
          {"precision", std::string(model::name_of(place.precision))},
          {"device", place.gpu ? place.gpu->name : "cpu"},
          {"global_batch", bench.workload().work.global_batch},
          {"parameters", network.parameters().parameter_count()},
          {"network", network.signature()},
          {"optimizer", std::string(model::name_of(options.work.train.optimizer.kind))},
          {"shard_optimizer", std::int64_t{bench.plan().shards_optimizer}},
          {"input", word_of(options.work.input)},
          {"steps", options.repeat},
          {"step_ms", 1e3 * result.typical()},
          {"step_ms_min", 1e3 * result.quickest()},
          {"samples_per_second", rate},
          {"rows_per_second", rate * static_cast<double>(network.positions())},
          {"input_fraction", split.input / split.total},
          {"compute_fraction", split.compute / split.total},
          {"communication_fraction", split.communication / split.total},
          {"host_fraction", split.other() / split.total},
          {"communication_ms", 1e3 * result.communication.value_or(kNotKnown)},
          {"exposed_ms", 1e3 * split.communication / static_cast<double>(options.repeat)},
          {"exposed_all_ms", 1e3 * result.share.communication},
          {"waiting_ms", 1e3 * result.share.waiting},
          {"buckets", static_cast<std::int64_t>(bucket_sizes.size())},
          {"bucket_sizes", fmt::format("{}", fmt::join(bucket_sizes, " "))},
          {"bucket_rule", bucket_rule},
          {"mfu", result.utilisation()},
          {"peak_flops", result.peak_flops()},
          {"roof_flops", result.roof.value_or(kNotKnown)},
          {"roofline_ms", 1e3 * result.fastest_possible()},
          {"peak_resident_mb", result.peak_bytes / (1024 * 1024)}};
}

}  // namespace

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& options) {
  const ExecutionOptions& execution = options.work.train.execution;
  const auto communicator = comm::make_communicator(session, communicator_options(execution));
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  const int ranks = communicator->size();
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  if (!options.plan.empty()) {
    write_backward_plan(*communicator, options.plan, *prepare_steps(*communicator, options.work, io_deadline).network);
    return 0;
  }
  RecordFile json(*communicator, options.json, &io_deadline);
  const Place place = find_place(*communicator, execution);
  std::vector<BucketTrial> trials;
  {
    TimedSteps bench(session, *communicator, place, options.work, io_deadline);
    const std::string rule = bench.plan().bucket_rule.text();
    const StepTiming result = measure(bench, *communicator, place, options);
    if (!place.note.empty()) console.info(place.note);
    show(console, result, bench, rule, options, ranks);
    json.write(to_record(result, bench, place, rule, options, ranks));
    if (options.sweep_buckets) trials = bucket_trials(*bench.workload().network, place, *communicator);
  }  // frees the engine before the next one is made
  if (options.sweep_buckets) {
    sweep(session, *communicator, place, options, io_deadline, trials);
    show_sweep(console, json, trials, ranks);
  }
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
