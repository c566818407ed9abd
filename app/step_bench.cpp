#include "app/step_bench.hpp"

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <random>

#include "app/image_options.hpp"
#include "app/report.hpp"
#include "app/sharding.hpp"
#include "app/start.hpp"
#include "comm/gradient_reducer.hpp"

namespace lockstep::app {

namespace {

constexpr int kResidentBatches = 8;

/// What samples would look like that are in no file.
model::SampleShape made_up_shape(const StepWork& work) {
  if (model::network_kind(work.train.model).tokens) {
    return {.features = work.train.model == "lstm" ? work.train.unroll : work.train.context,
            .outputs = work.outputs,
            .image = {},
            .tokens = true};
  }
  if (work.image.empty()) return {.features = work.features, .outputs = work.outputs, .image = {}};
  const model::ImageShape image = parse_image_shape(work.image);
  return {.features = image.elements(), .outputs = work.outputs, .image = image};
}

/// Without data: what prepare_workload makes with it.
Workload made_up_workload(const StepWork& work, int world) {
  constexpr std::int64_t kEndless = std::int64_t{1} << 40;
  Workload workload;
  try {
    workload.network = model::make_network(network_options(work.train), made_up_shape(work));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  workload.model.label_smoothing = static_cast<float>(work.train.label_smoothing);
  workload.model.loss = work.regression ? model::LossKind::mean_squared_error : model::LossKind::softmax_cross_entropy;
  workload.model.optimizer = optimizer_options(work.train);
  workload.work = work_plan(work.train, kEndless, world);
  workload.model.max_batch = workload.work.largest_part;
  if (model::network_kind(work.train.model).tokens) workload.model.sample_type = model::ElementType::int32;
  return workload;
}

/// Part `index` of `parts` nearly equal ones.
std::int64_t share_of(std::int64_t count, std::int64_t index, std::int64_t parts) {
  return count * (index + 1) / parts - count * index / parts;
}

}  // namespace

/// Random batches that stay in memory: the step without an input pipeline.
class ResidentInput {
 public:
  /// `memory`: of the host, from where batches travel fast.
  ResidentInput(const model::Network& network, const WorkPlan& work, const StepWork& options, int rank, int world,
                std::pmr::memory_resource* memory)
      : own_(share_of(work.global_batch, rank, world)),
        accumulate_(options.train.accumulate),
        step_count_(work.global_batch),
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
    const std::int64_t targets = shape.tokens ? shape.features : options.regression ? shape.outputs : 1;
    for (int i = 0; i < kResidentBatches; ++i) {
      fill(x_.emplace_back(static_cast<std::size_t>(work.largest_part * shape.features), memory), !shape.tokens);
      fill(y_.emplace_back(static_cast<std::size_t>(work.largest_part * targets), memory), options.regression);
    }
    keys_.assign(static_cast<std::size_t>(work.largest_part), 0);
    for (std::uint64_t& key : keys_) key = generator();
  }

  MicroBatch next() {
    const std::int64_t micro = count_ % accumulate_;
    const auto i = static_cast<std::size_t>(count_++ % kResidentBatches);
    return {.batch = {.x = x_[i].data(),
                      .x_type = x_type_,
                      .y = y_[i].data(),
                      .count = share_of(own_, micro, accumulate_),
                      .keys = keys_.data(),
                      .begins = count_ == 1},
            .step_count = step_count_,
            .next_position = count_};
  }

 private:
  std::int64_t own_, accumulate_, step_count_, count_ = 0;
  model::ElementType x_type_;
  std::vector<std::pmr::vector<float>> x_, y_;
  std::vector<std::uint64_t> keys_;
};

StepBench::StepBench(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
                     const StepWork& work)
    : communicator_(communicator), work_(work), workload_(prepare_steps(communicator_, work_)) {
  schedule_ = std::make_unique<model::LearningRateSchedule>(learning_rate_schedule(work_.train, workload_.work));
  all_succeed_or_usage(communicator_, [&] { check_sharding(work_.train, place); });
  engine_ = std::make_unique<Engine>(
      session, communicator_, place, work_.train, *workload_.network, workload_.model,
      gradient_buckets(work_.train, *workload_.network, place, communicator_));
  model::Backend& backend = engine_->backend();
  engine_->model().initialize(work_.train.seed);
  Trainer::NextMicroBatch next;
  if (work_.input == "data") {
    prefetcher_ = std::make_unique<io::Prefetcher>(
        *workload_.training,
        io::PrefetcherOptions{.order = {.seed = work_.train.seed, .shuffle = work_.train.shuffle, .shard_counts = {}},
                              .streams = takes_streams(*workload_.network),
                              .global_batch = workload_.work.global_batch,
                              .accumulate = work_.train.accumulate,
                              .rank = communicator_.rank(),
                              .world = communicator_.size(),
                              .memory = backend.host_memory()});
    feed_ = std::make_unique<BatchFeed>(*prefetcher_, feed_options(work_.train, workload_, backend));
    next = [this] { return feed_->next(); };
  } else {
    resident_ = std::make_unique<ResidentInput>(*workload_.network, workload_.work, work_, communicator_.rank(),
                                                communicator_.size(), backend.host_memory());
    next = [this] { return resident_->next(); };
  }
  parts_ = std::make_unique<Trainer::Parts>(engine_->parts());
  trainer_ = std::make_unique<Trainer>(*parts_, workload_.model.optimizer, *schedule_, work_.train.accumulate, next);
}

StepBench::~StepBench() = default;

RankStep StepBench::step() {
  StopWatch watch;
  const TimeSplit before = trainer_->time();
  const double busy_before = engine_->reduction().busy_seconds();
  samples_ += trainer_->step({}).figures.samples;
  const TimeSplit& after = trainer_->time();
  const RankStep step{.total = watch.seconds(),
                      .input = after.input - before.input,
                      .exposed = after.communication - before.communication};
  seconds_ += step.total;
  busy_ += engine_->reduction().busy_seconds() - busy_before;
  return step;
}

double StepBench::communication_seconds() const { return engine_->reduction().busy_seconds() < 0 ? -1 : busy_; }

TimeSplit StepBench::time() const {
  TimeSplit split = trainer_->time();
  split.total = seconds_;
  return split;
}

double StepBench::time_gradient_sum(int times) {
  communicator_.note_activity("timing the sum of the gradients", -1);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    communicator_.barrier();
    StopWatch watch;
    parts_->reducer.begin_step();
    parts_->reducer.finish_step();
    if (!parts_->model.updates_all()) {
      const std::span<float> weights = parts_->model.weights(model::Weights::current);
      for (std::size_t bucket = 0; bucket < engine_->buckets().size(); ++bucket) {
        parts_->reducer.gather(weights, bucket);
      }
      parts_->reducer.finish_gathering();
    }
    parts_->reduction.wait("the sum of the gradients", -1);
    seconds.push_back(watch.seconds());
  }
  return median_of(largest_over_ranks(communicator_, seconds));
}

StepTimes StepBench::gather(std::span<const RankStep> own) {
  constexpr std::size_t kNumbers = 3;
  const auto ranks = static_cast<std::size_t>(communicator_.size()),
             rank = static_cast<std::size_t>(communicator_.rank());
  std::vector<double> all(own.size() * ranks * kNumbers, 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) {
    double* const cell = all.data() + (i * ranks + rank) * kNumbers;
    cell[0] = own[i].total, cell[1] = own[i].input, cell[2] = own[i].exposed;
  }
  communicator_.all_reduce_sum(all);
  StepTimes times{.ranks = communicator_.size(), .cells = {}};
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    times.cells.push_back({.total = all[i], .input = all[i + 1], .exposed = all[i + 2]});
  }
  return times;
}

Workload prepare_steps(comm::Communicator& communicator, StepWork& work) {
  Workload workload;
  all_succeed_or_usage(communicator, [&] {
    workload = work.input == "memory" ? made_up_workload(work, communicator.size())
                                      : prepare_workload(work.train, communicator.size());
  });
  return workload;
}

std::vector<double> largest_over_ranks(comm::Communicator& communicator, std::span<const double> own) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all(own.size() * ranks, 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) all[i * ranks + static_cast<std::size_t>(communicator.rank())] = own[i];
  communicator.all_reduce_sum(all);
  std::vector<double> largest;
  for (auto at = all.begin(); at != all.end(); at += communicator.size()) {
    largest.push_back(*std::max_element(at, at + communicator.size()));
  }
  return largest;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::app
