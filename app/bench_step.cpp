#include "app/bench_step.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <random>
#include <vector>

#include "app/console.hpp"
#include "app/engine.hpp"
#include "app/figures.hpp"
#include "app/image_options.hpp"
#include "app/placement.hpp"
#include "app/plan.hpp"
#include "app/report.hpp"
#include "app/sharding.hpp"
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
  /// `memory`: of the host, from where batches travel fast.
  ResidentInput(const model::Network& network, const Workload& workload, bool regression, int rank,
                std::pmr::memory_resource* memory)
      : part_(workload.work.largest_part),
        step_count_(workload.work.global_batch),
        x_type_(network.sample_shape().tokens ? model::ElementType::int32 : model::ElementType::float32) {
    const model::SampleShape& shape = network.sample_shape();
    std::mt19937 generator(static_cast<unsigned>(rank) + 1);  // the values do not matter, only that they are no zeros
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<std::int32_t> label(0, static_cast<std::int32_t>(shape.outputs) - 1);
    const auto fill = [&](std::pmr::vector<float>& values, bool numbers) {
      for (float& value : values) {
        const std::int32_t index = label(generator);
        numbers ? static_cast<void>(value = normal(generator))
                : static_cast<void>(std::memcpy(&value, &index, sizeof value));
      }
    };
    const std::int64_t targets = shape.tokens ? shape.features : regression ? shape.outputs : 1;
    for (int i = 0; i < kResidentBatches; ++i) {
      fill(x_.emplace_back(static_cast<std::size_t>(part_ * shape.features), memory), !shape.tokens);
      fill(y_.emplace_back(static_cast<std::size_t>(part_ * targets), memory), regression);
    }
    keys_.assign(static_cast<std::size_t>(part_), 0);
    for (std::uint64_t& key : keys_) key = generator();
  }

  MicroBatch next() {
    const std::size_t i = static_cast<std::size_t>(count_++ % kResidentBatches);
    return {.batch = {.x = x_[i].data(),
                      .x_type = x_type_,
                      .y = y_[i].data(),
                      .count = part_,
                      .keys = keys_.data(),
                      .begins = count_ == 1},
            .step_count = step_count_,
            .next_position = count_};
  }

 private:
  std::int64_t part_, step_count_, count_ = 0;
  model::ElementType x_type_;
  std::vector<std::pmr::vector<float>> x_, y_;
  std::vector<std::uint64_t> keys_;
};

/// What samples would look like that are in no file.
model::SampleShape made_up_shape(const BenchStepOptions& options) {
  if (model::network_kind(options.train.model).tokens) {
    return {.features = options.train.model == "lstm" ? options.train.unroll : options.train.context,
            .outputs = options.outputs,
            .image = {},
            .tokens = true};
  }
  if (options.image.empty()) return {.features = options.features, .outputs = options.outputs, .image = {}};
  const model::ImageShape image = parse_image_shape(options.image);
  return {.features = image.elements(), .outputs = options.outputs, .image = image};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

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
  return 2.0 * size * size * size / median(seconds);
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& given) {
  BenchStepOptions options = given;
  const auto communicator =
      comm::make_communicator(session, {.transport = parse_transport(options.train.execution.transport),
                                        .deadline_seconds = options.train.execution.deadline});
  Console console(communicator->rank() == 0);
  const bool from_files = options.input == "data";

  Workload workload;
  all_succeed_or_usage(*communicator, [&] {
    if (from_files) {
      workload = prepare_workload(options.train, communicator->size());
      return;
    }
    try {
      workload.network = model::make_network(network_options(options.train), made_up_shape(options));
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
    workload.model.label_smoothing = static_cast<float>(options.train.label_smoothing);
    workload.model.loss =
        options.regression ? model::LossKind::mean_squared_error : model::LossKind::softmax_cross_entropy;
    workload.model.optimizer = optimizer_options(options.train);
    const std::int64_t endless = std::int64_t{1} << 40;
    workload.work = work_plan(options.train, endless, communicator->size());
    workload.model.max_batch = workload.work.largest_part;
    if (model::network_kind(options.train.model).tokens) workload.model.sample_type = model::ElementType::int32;
  });
  if (!options.plan.empty()) {
    write_backward_plan(*communicator, options.plan, *workload.network);
    return 0;
  }
  const model::LearningRateSchedule schedule = learning_rate_schedule(options.train, workload.work);
  const Place place = find_place(*communicator, options.train.execution);
  all_succeed_or_usage(*communicator, [&] { check_sharding(options.train, place); });
  Engine engine(session, *communicator, place, options.train, *workload.network, workload.model,
                gradient_buckets(options.train, *workload.network, place, *communicator));
  model::Backend& backend = engine.backend();
  engine.model().initialize(options.train.seed);
  std::unique_ptr<ResidentInput> resident;
  std::unique_ptr<io::Prefetcher> prefetcher;
  std::unique_ptr<BatchFeed> feed;
  Trainer::NextMicroBatch next;
  if (from_files) {
    prefetcher = std::make_unique<io::Prefetcher>(
        *workload.training,
        io::PrefetcherOptions{
            .order = {.seed = options.train.seed, .shuffle = options.train.shuffle, .shard_counts = {}},
            .streams = takes_streams(*workload.network),
            .global_batch = workload.work.global_batch,
            .accumulate = options.train.accumulate,
            .rank = communicator->rank(),
            .world = communicator->size(),
            .memory = backend.host_memory()});
    feed = std::make_unique<BatchFeed>(*prefetcher, feed_options(options.train, workload, backend));
    next = [&] { return feed->next(); };
  } else {
    resident = std::make_unique<ResidentInput>(*workload.network, workload, options.regression, communicator->rank(),
                                               backend.host_memory());
    next = [&] { return resident->next(); };
  }
  Trainer trainer(engine.parts(), workload.model.optimizer, schedule, options.train.accumulate, next);

  for (std::int64_t i = 0; i < options.warmup; ++i) trainer.step({});
  communicator->barrier();
  const TimeSplit before = trainer.time();
  std::vector<double> seconds;
  StopWatch whole;
  double samples = 0;
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    StopWatch watch;
    samples += trainer.step({}).figures.samples;
    seconds.push_back(watch.seconds());
  }
  const double elapsed = whole.seconds();
  const TimeSplit split{.input = trainer.time().input - before.input,
                        .compute = trainer.time().compute - before.compute,
                        .communication = trainer.time().communication - before.communication,
                        .total = elapsed};
  const double peak_bytes = peak_resident_bytes();
  communicator->barrier();
  const double roof = measure_roof(backend);  // all ranks at once: they share the machine in the step, too

  double flops = 0;
  for (const model::LayerPlan& layer : workload.network->plan()) flops += layer.forward_flops + layer.backward_flops;
  const double typical = median(seconds);
  const double samples_per_step = samples / static_cast<double>(options.repeat);
  const double flops_per_rank = flops * samples_per_step / communicator->size();
  const double fastest_possible = flops_per_rank / roof;
  const double quickest = *std::min_element(seconds.begin(), seconds.end());
  if (!place.note.empty()) console.info(place.note);
  for (const std::string& note : backend.notes()) console.warn(note);
  console.info(fmt::format("{}\n{}, {}, {} samples per step, {} steps after {} to warm up, input: {}",
                           engine.description(), counted(communicator->size(), "rank"),
                           engine.reduction().transport_name(), with_commas(workload.work.global_batch), options.repeat,
                           options.warmup, options.input));
  console.info(fmt::format("step       {:.4f} ms median, {:.4f} ms quickest", 1e3 * typical, 1e3 * quickest));
  const auto positions = static_cast<double>(workload.network->positions());
  console.info(fmt::format("rate       {} {}/s at the median, {} on the whole",
                           with_commas(std::llround(samples_per_step * positions / typical)),
                           workload.network->sample_shape().tokens ? "tokens" : "samples",
                           with_commas(std::llround(samples * positions / elapsed))));
  const auto percent = [&](double part) { return fmt::format("{:.1f} %", 100 * part / split.total); };
  console.info(fmt::format("time       compute {}  exposed communication {}  input {}  host {}", percent(split.compute),
                           percent(split.communication), percent(split.input), percent(split.other())));
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
  write_json(*communicator, options.json,
             {{"bench", std::string("step")},
              {"world", std::int64_t{communicator->size()}},
              {"transport", std::string(engine.reduction().transport_name())},
              {"backend", std::string(backend.name())},
              {"precision", std::string(model::name_of(place.precision))},
              {"device", place.gpu ? place.gpu->name : std::string("cpu")},
              {"global_batch", workload.work.global_batch},
              {"parameters", workload.network->parameters().parameter_count()},
              {"network", workload.network->signature()},
              {"optimizer", options.train.optimizer},
              {"shard_optimizer", std::int64_t{shards_optimizer(options.train, communicator->size())}},
              {"input", options.input},
              {"steps", options.repeat},
              {"step_ms", 1e3 * typical},
              {"step_ms_min", 1e3 * quickest},
              {"samples_per_second", samples_per_step / typical},
              {"rows_per_second", samples_per_step * positions / typical},
              {"input_fraction", split.input / split.total},
              {"compute_fraction", split.compute / split.total},
              {"communication_fraction", split.communication / split.total},
              {"host_fraction", split.other() / split.total},
              {"mfu", utilisation},
              {"peak_flops", peak.flops},
              {"roof_flops", roof},
              {"roofline_ms", 1e3 * fastest_possible},
              {"peak_resident_mb", peak_bytes / (1024 * 1024)}});
  return 0;
}

}  // namespace lockstep::app
