#include "app/bench_step.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "app/console.hpp"
#include "app/figures.hpp"
#include "app/report.hpp"
#include "app/snapshot.hpp"
#include "app/start.hpp"
#include "app/trainer.hpp"
#include "app/workload.hpp"
#include "comm/agreement.hpp"
#include "io/metrics_log.hpp"
#include "io/prefetcher.hpp"

namespace lockstep::app {

namespace {

constexpr int kResidentBatches = 8;

/// Random batches that stay in memory: the step without an input pipeline.
class ResidentInput {
 public:
  ResidentInput(const BenchStepOptions& options, const WorkPlan& work, std::int64_t part, int rank)
      : part_(part), step_count_(work.global_batch) {
    std::mt19937 generator(static_cast<unsigned>(rank) + 1);  // the values do not matter, only that they are no zeros
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<std::int32_t> label(0, static_cast<std::int32_t>(options.outputs) - 1);
    for (int i = 0; i < kResidentBatches; ++i) {
      std::vector<float>& x = x_.emplace_back(static_cast<std::size_t>(part * options.features));
      std::generate(x.begin(), x.end(), [&] { return normal(generator); });
      std::vector<float>& y =
          y_.emplace_back(static_cast<std::size_t>(part * (options.regression ? options.outputs : 1)));
      for (float& value : y) {
        const std::int32_t index = label(generator);
        options.regression ? static_cast<void>(value = normal(generator))
                           : static_cast<void>(std::memcpy(&value, &index, sizeof value));
      }
    }
  }

  MicroBatch next() {
    const std::size_t i = static_cast<std::size_t>(count_++ % kResidentBatches);
    return {.batch = {.x = x_[i].data(), .x_type = model::ElementType::float32, .y = y_[i].data(), .count = part_},
            .step_count = step_count_,
            .next_position = count_};
  }

 private:
  std::int64_t part_, step_count_, count_ = 0;
  std::vector<std::vector<float>> x_, y_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// FLOP/s of a 1,024-cube matrix product on this backend: the roof that a step's products can reach.
double measure_roof(model::Backend& backend) {
  constexpr std::int64_t n = 1024;
  std::pmr::vector<std::byte> memory(3 * n * n * sizeof(float), backend.memory());
  const auto matrix = [&](int i) {
    return model::Tensor{
        .data = memory.data() + static_cast<std::size_t>(i) * n * n * sizeof(float), .rows = n, .columns = n};
  };
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    StopWatch watch;
    backend.linear_forward(matrix(0), matrix(1), {}, model::Activation::none, matrix(2));
    seconds.push_back(watch.seconds());
  }
  return 2.0 * n * n * n / median(seconds);
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& given) {
  BenchStepOptions options = given;
  const auto communicator = comm::make_communicator(
      session, {.transport = parse_transport(options.train.transport), .deadline_seconds = options.train.deadline});
  Console console(communicator->rank() == 0);
  const bool from_files = options.input == "data";

  Workload workload;
  all_succeed_or_usage(*communicator, [&] {
    if (from_files) {
      workload = prepare_workload(options.train, communicator->size());
      return;
    }
    workload.network =
        model::make_network(network_options(options.train), {.features = options.features, .outputs = options.outputs});
    workload.model.loss =
        options.regression ? model::LossKind::mean_squared_error : model::LossKind::softmax_cross_entropy;
    workload.model.optimizer = optimizer_options(options.train);
    const std::int64_t endless = std::int64_t{1} << 40;
    workload.work = work_plan(options.train, endless, communicator->size());
    workload.model.max_batch = workload.work.largest_part;
  });
  const model::LearningRateSchedule schedule = learning_rate_schedule(options.train, workload.work);
  const auto buckets = comm::bucket_schedule(workload.network->parameters().slice_ends(), *communicator,
                                             static_cast<std::size_t>(options.train.bucket_size));

  const auto backend = model::make_backend("cpu", {.threads = options.train.threads});
  const auto gradient_memory =
      communicator->reduction_memory(workload.network->parameters().arena_elements() * sizeof(float));
  workload.model.gradient_memory = gradient_memory.get();
  model::Model model(*backend, *workload.network, workload.model);
  model.initialize(options.train.seed);
  std::unique_ptr<ResidentInput> resident;
  std::unique_ptr<io::Prefetcher> prefetcher;
  Trainer::NextMicroBatch next;
  if (from_files) {
    prefetcher = std::make_unique<io::Prefetcher>(
        *workload.training,
        io::PrefetcherOptions{
            .order = {.seed = options.train.seed, .shuffle = options.train.shuffle, .shard_counts = {}},
            .global_batch = workload.work.global_batch,
            .accumulate = options.train.accumulate,
            .rank = communicator->rank(),
            .world = communicator->size()});
    next = [&] { return next_micro_batch(*prefetcher, element_type(workload.training->x_type())); };
  } else {
    resident =
        std::make_unique<ResidentInput>(options, workload.work, workload.work.largest_part, communicator->rank());
    next = [&] { return resident->next(); };
  }
  comm::GradientReducer reducer(*communicator, model.gradients(), buckets);
  Trainer trainer(model, *communicator, reducer, workload.model.optimizer, schedule, options.train.accumulate, next);

  for (std::int64_t i = 0; i < options.warmup; ++i) trainer.step({});
  communicator->barrier();
  const TimeSplit before = trainer.time();
  const double stalled_before = prefetcher ? prefetcher->stall_seconds() : 0;
  std::vector<double> seconds;
  StopWatch whole;
  double samples = 0;
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    StopWatch watch;
    samples += trainer.step({}).figures.samples;
    seconds.push_back(watch.seconds());
  }
  const double elapsed = whole.seconds();
  TimeSplit split{.input = (prefetcher ? prefetcher->stall_seconds() : 0) - stalled_before,
                  .compute = trainer.time().compute - before.compute,
                  .communication = trainer.time().communication - before.communication,
                  .total = elapsed};
  split.compute -= split.input;
  const double peak_bytes = peak_resident_bytes();
  communicator->barrier();
  const double roof = measure_roof(*backend);  // all ranks at once: they share the machine in the step, too

  double flops = 0;
  for (const model::LayerPlan& layer : workload.network->plan()) flops += layer.forward_flops + layer.backward_flops;
  const double typical = median(seconds);
  const double samples_per_step = samples / static_cast<double>(options.repeat);
  const double flops_per_rank = flops * samples_per_step / communicator->size();
  const double fastest_possible = flops_per_rank / roof;
  const double quickest = *std::min_element(seconds.begin(), seconds.end());
  console.info(fmt::format("{}\n{}, {}, {} samples per step, {} steps after {} to warm up, input: {}",
                           backend->description(), counted(communicator->size(), "rank"),
                           communicator->transport_name(), with_commas(workload.work.global_batch), options.repeat,
                           options.warmup, options.input));
  console.info(fmt::format("step       {:.4f} ms median, {:.4f} ms quickest", 1e3 * typical, 1e3 * quickest));
  console.info(fmt::format("rate       {} samples/s at the median, {} on the whole",
                           with_commas(std::llround(samples_per_step / typical)),
                           with_commas(std::llround(samples / elapsed))));
  console.info(fmt::format("time       {}", format_split(split)));
  console.info(fmt::format(
      "roofline   {:.4f} ms per step: {} per rank at {}/s (1,024-cube product on every rank at once); {:.0f} % of it "
      "reached",
      1e3 * fastest_possible, format_flops(flops_per_rank), format_flops(roof), 100 * fastest_possible / typical));
  console.info(fmt::format("memory     {} resident at the peak (rank 0)", format_bytes(peak_bytes)));
  write_json(*communicator, options.json,
             {{"bench", std::string("step")},
              {"world", std::int64_t{communicator->size()}},
              {"transport", std::string(communicator->transport_name())},
              {"global_batch", workload.work.global_batch},
              {"parameters", workload.network->parameters().parameter_count()},
              {"optimizer", options.train.optimizer},
              {"input", options.input},
              {"steps", options.repeat},
              {"step_ms", 1e3 * typical},
              {"step_ms_min", 1e3 * quickest},
              {"samples_per_second", samples_per_step / typical},
              {"input_fraction", split.input / split.total},
              {"compute_fraction", split.compute / split.total},
              {"communication_fraction", split.communication / split.total},
              {"roof_flops", roof},
              {"roofline_ms", 1e3 * fastest_possible},
              {"peak_resident_mb", peak_bytes / (1024 * 1024)}});
  return 0;
}

}  // namespace lockstep::app
