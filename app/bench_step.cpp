#include "app/bench_step.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "app/console.hpp"
#include "app/figures.hpp"
#include "app/placement.hpp"
#include "app/plan.hpp"
#include "app/report.hpp"
#include "app/result_file.hpp"
#include "app/sharding.hpp"
#include "app/snapshot.hpp"
#include "app/step_bench.hpp"
#include "io/metrics_log.hpp"

namespace lockstep::app {

namespace {

/// Matrices of a product that shows what the device reaches at best: large enough to keep all of it busy.
std::int64_t roof_size(const model::Backend& backend) { return backend.is_host() ? 1024 : 8192; }

/// FLOP/s of a product of such matrices on this backend: the roof that a step's products can reach.
double measure_roof(model::Backend& backend) {
  const std::int64_t n = roof_size(backend);
  const std::size_t matrix_bytes = static_cast<std::size_t>(n * n) * size_of(backend.compute_type());
  std::vector<float> values(static_cast<std::size_t>(n * n));  // no constant: bits that never flip take less power
  std::uint32_t bits = 1;
  for (float& value : values) {
    bits = bits * 1664525u + 1013904223u;
    value = static_cast<float>(bits >> 8) * 0x1p-23f - 1;
  }
  std::array<model::Tensor, 3> matrices;
  for (model::Tensor& matrix : matrices) {
    matrix = {backend.memory()->allocate(matrix_bytes, 256), backend.compute_type(), n, n};
    backend.upload(values, matrix);
  }
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
  return 2.0 * size * size * size / median_of(seconds);
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Collective: so many steps of this rank.
std::vector<RankStep> time_steps(StepBench& bench, std::int64_t count) {
  std::vector<RankStep> steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(bench.step());
  return steps;
}

std::vector<double> totals(const std::vector<RankStep>& steps) {
  std::vector<double> seconds;
  for (const RankStep& step : steps) seconds.push_back(step.total);
  return seconds;
}

/// "3 (256 KiB to 4.0 MiB)": of gradients.
std::string describe_buckets(std::span<const comm::Slice> buckets) {
  const auto [least, most] = std::minmax_element(
      buckets.begin(), buckets.end(), [](const comm::Slice& a, const comm::Slice& b) { return a.count < b.count; });
  const auto bytes = [](const comm::Slice& bucket) {
    return format_bytes(static_cast<double>(bucket.count * sizeof(float)));
  };
  return fmt::format("{} ({}{})", counted(static_cast<std::int64_t>(buckets.size()), "bucket"), bytes(*least),
                     least->count == most->count ? "" : fmt::format(" to {}", bytes(*most)));
}

/// Numbers of one bucket size.
struct BucketTrial {
  std::int64_t size = 0;  ///< elements, 0: by the rule
  std::vector<comm::Slice> buckets;
  std::vector<double> seconds, exposed;  ///< of a step: a median for each round
};

/// The rule, and sizes from everything in one bucket down to kLeastBucket elements; of those that cut the gradients
/// alike, one.
std::vector<BucketTrial> bucket_trials(const StepWork& work, const Workload& workload, const Place& place,
                                       const comm::Communicator& communicator) {
  constexpr std::int64_t kLeastBucket = 64 * 1024, kFactor = 4;
  std::vector<std::int64_t> sizes{0};
  const std::vector<std::size_t>& slice_ends = workload.network->parameters().slice_ends();
  const auto all = static_cast<std::int64_t>(slice_ends.back());
  sizes.push_back(all);
  std::int64_t size = kLeastBucket;
  while (size * kFactor < all) size *= kFactor;
  for (; size >= kLeastBucket; size /= kFactor) sizes.push_back(size);
  std::vector<BucketTrial> trials;
  for (const std::int64_t one : sizes) {
    TrainOptions train = work.train;
    train.bucket_size = one;
    BucketTrial trial{.size = one,
                      .buckets = gradient_buckets(train, *workload.network, place, communicator),
                      .seconds = {},
                      .exposed = {}};
    const bool known = std::any_of(trials.begin(), trials.end(),
                                   [&](const BucketTrial& other) { return other.buckets == trial.buckets; });
    if (!known) trials.push_back(std::move(trial));
  }
  return trials;
}

/// Collective. Steps with every trial's buckets, in turns.
void sweep(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
           const BenchStepOptions& options, std::vector<BucketTrial>& trials) {
  constexpr std::int64_t kRounds = 5;
  for (std::int64_t round = 0; round < kRounds; ++round) {
    for (BucketTrial& trial : trials) {
      StepWork work = options.work;
      work.train.bucket_size = trial.size;
      StepBench bench(session, communicator, place, work);
      time_steps(bench, options.warmup);
      communicator.barrier();
      const std::vector<RankStep> steps = time_steps(bench, std::max<std::int64_t>(1, options.repeat / kRounds));
      trial.seconds.push_back(median_of(totals(steps)));
      std::vector<double> exposed;
      for (const RankStep& step : steps) exposed.push_back(step.exposed);
      trial.exposed.push_back(median_of(exposed));
    }
  }
  for (BucketTrial& trial : trials) {
    trial.seconds = largest_over_ranks(communicator, trial.seconds);
    trial.exposed = largest_over_ranks(communicator, trial.exposed);
  }
}

void show_sweep(Console& console, ResultFile& json, const std::vector<BucketTrial>& trials, int ranks) {
  console.info(fmt::format("\n{:>16}{:>10}{:>16}{:>12}{:>14}", "bucket size", "buckets", "largest", "step (ms)",
                           "exposed (ms)"));
  const BucketTrial* best = nullptr;
  for (const BucketTrial& trial : trials) {
    const double seconds = median_of(trial.seconds);
    if (best == nullptr || seconds < median_of(best->seconds)) best = &trial;
    std::size_t largest = 0;
    for (const comm::Slice& bucket : trial.buckets) largest = std::max(largest, bucket.count);
    console.info(fmt::format("{:>16}{:>10}{:>16}{:>12.4f}{:>14.4f}",
                             trial.size == 0 ? "by the rule" : with_commas(trial.size), trial.buckets.size(),
                             with_commas(static_cast<std::int64_t>(largest)), 1e3 * seconds,
                             1e3 * median_of(trial.exposed)));
    json.write(io::to_json_line({{"bench", std::string("step-buckets")},
                                 {"world", std::int64_t{ranks}},
                                 {"bucket_size", trial.size},
                                 {"buckets", static_cast<std::int64_t>(trial.buckets.size())},
                                 {"largest_bucket", static_cast<std::int64_t>(largest)},
                                 {"step_ms", 1e3 * seconds},
                                 {"exposed_ms", 1e3 * median_of(trial.exposed)}}) +
               "\n");
  }
  const BucketTrial& rule = trials.front();
  if (best == &rule) {
    console.info("the rule's buckets are the best of these");
  } else {
    console.info(fmt::format("the rule's step takes {:.1f} % longer than with --bucket-size {}, the best of these",
                             100 * (median_of(rule.seconds) / median_of(best->seconds) - 1), best->size));
  }
}

}  // namespace

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& options) {
  const TrainOptions& train = options.work.train;
  const auto communicator = comm::make_communicator(
      session, {.transport = parse_transport(train.execution.transport), .deadline_seconds = train.execution.deadline});
  const int ranks = communicator->size();
  Console console(communicator->rank() == 0);
  if (!options.plan.empty()) {
    StepWork work = options.work;
    write_backward_plan(*communicator, options.plan, *prepare_steps(*communicator, work).network);
    return 0;
  }
  ResultFile json(*communicator, options.json);
  const Place place = find_place(*communicator, train.execution);
  auto bench = std::make_unique<StepBench>(session, *communicator, place, options.work);
  model::Backend& backend = bench->engine().backend();
  const Workload& workload = bench->workload();
  const std::string rule = bucket_rule(train, place, *communicator).text();

  time_steps(*bench, options.warmup);
  communicator->barrier();
  const TimeSplit before = bench->time();
  const double samples_before = bench->samples(), communication_before = bench->communication_seconds();
  const std::vector<RankStep> steps = time_steps(*bench, options.repeat);
  const TimeSplit split{.input = bench->time().input - before.input,
                        .compute = bench->time().compute - before.compute,
                        .communication = bench->time().communication - before.communication,
                        .total = bench->time().total - before.total};
  const double samples = bench->samples() - samples_before;
  const bool knows_communication = communication_before >= 0;
  const double communication =
      knows_communication ? bench->communication_seconds() - communication_before : std::nan("");
  const double peak_bytes = peak_resident_bytes();
  const StepTimes times = bench->gather(steps);
  const StepShare share = app::split(times);
  communicator->barrier();
  const double roof = measure_roof(backend);  // all ranks at once: they share the machine in the step, too

  double flops = 0;
  for (const model::LayerPlan& layer : workload.network->plan()) flops += layer.forward_flops + layer.backward_flops;
  const std::vector<double> seconds = totals(steps);
  const auto count = static_cast<double>(options.repeat);
  const double typical = median_of(seconds), quickest = *std::min_element(seconds.begin(), seconds.end());
  const double samples_per_step = samples / count;
  const double flops_per_rank = flops * samples_per_step / ranks;
  const double fastest_possible = flops_per_rank / roof;
  if (!place.note.empty()) console.info(place.note);
  for (const std::string& note : backend.notes()) console.warn(note);
  console.info(fmt::format("{}\n{}, {}, {} samples per step, {} steps after {} to warm up, input: {}",
                           bench->engine().description(), counted(ranks, "rank"),
                           bench->engine().reduction().transport_name(), with_commas(workload.work.global_batch),
                           options.repeat, options.warmup, options.work.input));
  console.info(fmt::format("step       {:.4f} ms median, {:.4f} ms quickest", 1e3 * typical, 1e3 * quickest));
  const auto positions = static_cast<double>(workload.network->positions());
  console.info(fmt::format("rate       {} {}/s at the median, {} on the whole",
                           with_commas(std::llround(samples_per_step * positions / typical)),
                           workload.network->sample_shape().tokens ? "tokens" : "samples",
                           with_commas(std::llround(samples * positions / split.total))));
  const auto percent = [&](double part) { return fmt::format("{:.1f} %", 100 * part / split.total); };
  console.info(fmt::format("time       compute {}  exposed communication {}  input {}  host {}", percent(split.compute),
                           percent(split.communication), percent(split.input), percent(split.other())));
  if (ranks > 1) {
    const std::string whole =
        !knows_communication ? std::string() : fmt::format("{:.4f} ms per step in all, ", 1e3 * communication / count);
    console.info(
        fmt::format("sums       {}{:.4f} ms of it exposed; all ranks: {:.4f} ms, and {:.4f} ms wait for the slowest",
                    whole, 1e3 * split.communication / count, 1e3 * share.communication, 1e3 * share.waiting));
    console.info(fmt::format("buckets    {}, {}", describe_buckets(bench->engine().buckets()), rule));
  }
  console.info(fmt::format(
      "roofline   {:.4f} ms per step: {} per rank at {}/s ({}-cube product on every rank at once); {:.0f} % of it "
      "reached",
      1e3 * fastest_possible, format_flops(flops_per_rank), format_flops(roof), with_commas(roof_size(backend)),
      100 * fastest_possible / typical));
  const model::DevicePeak peak = place.gpu ? model::peak_of(*place.gpu, place.precision) : model::DevicePeak{};
  const double utilisation = peak.flops > 0 ? flops_per_rank / typical / peak.flops : 0;
  if (peak.flops > 0) {
    console.info(fmt::format("MFU        {:.1f} % of {}/s per rank ({})", 100 * utilisation, format_flops(peak.flops),
                             peak.source));
  }
  console.info(fmt::format("memory     {} resident at the peak (rank 0)", format_bytes(peak_bytes)));
  std::string bucket_sizes;
  for (const comm::Slice& bucket : bench->engine().buckets()) {
    bucket_sizes += fmt::format("{}{}", bucket_sizes.empty() ? "" : " ", bucket.count);
  }
  json.write(io::to_json_line({{"bench", std::string("step")},
                               {"world", std::int64_t{ranks}},
                               {"transport", std::string(bench->engine().reduction().transport_name())},
                               {"backend", std::string(backend.name())},
                               {"precision", std::string(model::name_of(place.precision))},
                               {"device", place.gpu ? place.gpu->name : std::string("cpu")},
                               {"global_batch", workload.work.global_batch},
                               {"parameters", workload.network->parameters().parameter_count()},
                               {"network", workload.network->signature()},
                               {"optimizer", train.optimizer},
                               {"shard_optimizer", std::int64_t{shards_optimizer(train, ranks)}},
                               {"input", options.work.input},
                               {"steps", options.repeat},
                               {"step_ms", 1e3 * typical},
                               {"step_ms_min", 1e3 * quickest},
                               {"samples_per_second", samples_per_step / typical},
                               {"rows_per_second", samples_per_step * positions / typical},
                               {"input_fraction", split.input / split.total},
                               {"compute_fraction", split.compute / split.total},
                               {"communication_fraction", split.communication / split.total},
                               {"host_fraction", split.other() / split.total},
                               {"communication_ms", 1e3 * communication / count},
                               {"exposed_ms", 1e3 * split.communication / count},
                               {"exposed_all_ms", 1e3 * share.communication},
                               {"waiting_ms", 1e3 * share.waiting},
                               {"buckets", static_cast<std::int64_t>(bench->engine().buckets().size())},
                               {"bucket_sizes", bucket_sizes},
                               {"bucket_rule", rule},
                               {"mfu", utilisation},
                               {"peak_flops", peak.flops},
                               {"roof_flops", roof},
                               {"roofline_ms", 1e3 * fastest_possible},
                               {"peak_resident_mb", peak_bytes / (1024 * 1024)}}) +
             "\n");
  if (options.sweep_buckets) {
    std::vector<BucketTrial> trials = bucket_trials(options.work, workload, place, *communicator);
    bench.reset();  // one engine's memory at a time
    sweep(session, *communicator, place, options, trials);
    show_sweep(console, json, trials, ranks);
  }
  return 0;
}

}  // namespace lockstep::app
