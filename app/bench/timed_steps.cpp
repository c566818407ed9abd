#include "app/bench/timed_steps.hpp"

#include <array>
#include <memory_resource>

#include "app/bench/random_values.hpp"
#include "app/bench/rank_values.hpp"
#include "app/data/network_input.hpp"
#include "app/plan/common_result.hpp"
#include "app/plan/tuning.hpp"
#include "app/report/statistics.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/gradient_reducer.hpp"

namespace lockstep::app {

namespace {

constexpr std::uint32_t kResidentBatches = 2;  // batches take turns, so that no step finds its samples in a cache

/// Shape of samples that are in no file.
model::SampleShape synthetic_shape(const StepWork& work) {
  if (const std::int64_t context = model::tokens_per_sample(work.train.network); context > 0) {
    return {.features = context, .outputs = work.outputs, .image = {}, .tokens = true};
  }
  if (const std::optional<model::SampleShape> several = shape_of_inputs(work.train.network, work.outputs)) {
    return *several;
  }
  return {.features = work.image ? work.image->elements() : work.features,
          .outputs = work.outputs,
          .image = work.image,
          .takes_grid_of_output = !work.regression};
}

/// The workload of synthetic samples, in place of prepare_workload().
Workload synthetic_workload(const StepWork& work, int world) {
  constexpr std::int64_t kEndless = std::int64_t{1} << 40;
  Workload workload;
  workload.options = work.train;
  try {
    workload.network = model::make_network(work.train.network, synthetic_shape(work));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  apply_tuning(work.train.tuning, *workload.network);
  workload.model.label_smoothing = static_cast<float>(work.train.loss.label_smoothing);
  workload.model.loss = work.regression ? model::LossKind::mean_squared_error : model::LossKind::softmax_cross_entropy;
  workload.optimizer = work.train.optimizer;
  workload.work = work_plan(work.train.work, {.samples = kEndless, .world = world, .has_batch = true});
  workload.model.max_batch = workload.work.largest_part;
  if (workload.network->sample_shape().tokens) workload.model.sample_type = model::ElementType::int32;
  return workload;
}

/// Size of part `index` when `count` is cut into `parts` nearly equal parts.
std::int64_t share_of(std::int64_t count, std::int64_t index, std::int64_t parts) {
  return count * (index + 1) / parts - count * index / parts;
}

}  // namespace

/// Random batches that stay in memory: the step without an input pipeline.
class ResidentInput {
 public:
  /// `memory`: host memory from which copies are fast.
  ResidentInput(const model::Network& network, const WorkPlan& work, const StepWork& options, int rank, int world,
                std::pmr::memory_resource* memory)
      : own_(app::share_of(work, rank, world).sequences.count),
        accumulate_(app::share_of(work, rank, world).micro_steps),
        step_count_(work.global_batch),
        features_(network.sample_shape().features),
        targets_(options.regression ? network.sample_shape().outputs : network.positions()),
        x_type_(network.sample_shape().tokens ? model::ElementType::int32 : model::ElementType::float32),
        y_type_(options.regression ? model::ElementType::float32 : model::ElementType::int32) {
    const model::SampleShape& shape = network.sample_shape();
    const auto rows = static_cast<std::size_t>(work.largest_part);
    std::uint32_t stream = static_cast<std::uint32_t>(rank) * 2 * kResidentBatches;
    const auto fill = [&](std::pmr::vector<float>& values, bool numbers) {
      numbers ? fill_random(values, stream) : fill_random_indices(values, stream, shape.outputs);
      ++stream;
    };
    const std::vector<model::TokenRange> tokens = network.token_ranges();
    for (std::uint32_t i = 0; i < kResidentBatches; ++i) {
      fill(x_.emplace_back(rows * static_cast<std::size_t>(features_), memory), !shape.tokens);
      for (const model::TokenRange& range : tokens) put_tokens(range, x_.back(), stream);
      fill(y_.emplace_back(rows * static_cast<std::size_t>(targets_), memory), options.regression);
    }
    keys_.resize(rows);
    for (std::size_t i = 0; i < rows; ++i)
      keys_[i] = random_bits(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(i));
  }

  /// Fills a range of each sample's numbers with random tokens.
  void put_tokens(const model::TokenRange& range, std::span<float> x, std::uint32_t stream) const {
    for (std::size_t at = static_cast<std::size_t>(range.first); at < x.size();
         at += static_cast<std::size_t>(features_)) {
      for (std::size_t i = at; i < at + static_cast<std::size_t>(range.count); ++i) {
        const auto token =
            random_bits(stream, static_cast<std::uint32_t>(i)) % static_cast<std::uint64_t>(range.vocabulary);
        x[i] = static_cast<float>(token);
      }
    }
  }

  MicroBatch next() {
    const std::int64_t micro = count_ % accumulate_;
    const auto i = static_cast<std::size_t>(count_++ % kResidentBatches);
    const std::int64_t count = share_of(own_, micro, accumulate_);
    return {.batch = {.x = {x_[i].data(), x_type_, count, features_},
                      .y = {y_[i].data(), y_type_, count, targets_},
                      .keys = model::host_tensor(keys_.data(), count, 1),
                      .begins = count_ == 1},
            .step_count = step_count_,
            .next_position = count_};
  }

 private:
  std::int64_t own_, accumulate_, step_count_, features_, targets_, count_ = 0;
  model::ElementType x_type_, y_type_;
  std::vector<std::pmr::vector<float>> x_, y_;
  std::vector<std::uint64_t> keys_;
};

TimedSteps::TimedSteps(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
                       const StepWork& work, io::IoDeadline& deadline)
    : communicator_(communicator),
      work_(work),
      plan_(complete_plan(communicator_, prepare_steps(communicator_, work_, deadline), place)) {
  const Workload& workload = plan_.workload;
  engine_ = std::make_unique<Engine>(session, communicator_, plan_);
  model::Backend& backend = engine_->backend();
  engine_->training().parameters.initialize(workload.options.work.seed);
  NextMicroBatch next;
  if (work_.input == InputFrom::data) {
    io::PrefetcherOptions input = reading(workload, communicator_.rank(), communicator_.size());
    input.memory = backend.host_memory();
    prefetcher_ = std::make_unique<io::Prefetcher>(*workload.training, input);
    const std::int64_t micro_steps =
        app::share_of(workload.work, communicator_.rank(), communicator_.size()).micro_steps;
    feed_ = std::make_unique<BatchFeed>(make_feed(plan_, backend, *prefetcher_, communicator_, micro_steps));
    next = batches_of(*feed_);
  } else {
    resident_ = std::make_unique<ResidentInput>(*workload.network, workload.work, work_, communicator_.rank(),
                                                communicator_.size(), backend.host_memory());
    next = {.next = [this] { return resident_->next(); }};
  }
  context_ = std::make_unique<Trainer::Context>(engine_->trainer_context());
  context_->communicator.measure_every_step();
  trainer_ = std::make_unique<Trainer>(
      *context_, plan_.schedule, share_of(workload.work, communicator_.rank(), communicator_.size()).micro_steps, next);
}

TimedSteps::~TimedSteps() = default;

RankStep TimedSteps::step() {
  StopWatch watch;
  const TimeSplit before = trainer_->time();
  const double busy_before = engine_->gradient_communicator().busy_seconds();
  samples_ += trainer_->step({}).figures.samples;
  const TimeSplit& after = trainer_->time();
  const RankStep step{.total = watch.seconds(),
                      .input = after.input - before.input,
                      .exposed = after.communication - before.communication};
  seconds_ += step.total;
  busy_ += engine_->gradient_communicator().busy_seconds() - busy_before;
  return step;
}

double TimedSteps::communication_seconds() const {
  return engine_->gradient_communicator().busy_seconds() < 0 ? -1 : busy_;
}

TimeSplit TimedSteps::time() const {
  TimeSplit split = trainer_->time();
  split.total = seconds_;
  return split;
}

double TimedSteps::time_gradient_sum(int times) {
  communicator_.note_activity("timing the sum of the gradients", -1);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    communicator_.barrier();
    communicator_.wait();
    StopWatch watch;
    context_->reducer.begin_step();
    context_->reducer.finish_step();
    if (context_->training.optimizer.is_partitioned()) {
      const std::span<float> weights = context_->training.parameters.weight_elements(model::Weights::current);
      for (std::size_t bucket = 0; bucket < engine_->buckets().size(); ++bucket) {
        context_->reducer.gather(weights, bucket);
      }
      context_->reducer.finish_gathering();
    }
    context_->gradient_communicator.wait("the sum of the gradients", -1);
    seconds.push_back(watch.seconds());
  }
  return median(largest_over_ranks(communicator_, seconds));
}

StepTimes TimedSteps::gather(std::span<const RankStep> own) {
  std::array<std::vector<double>, 3> numbers;
  for (const RankStep& step : own) {
    numbers[0].push_back(step.total);
    numbers[1].push_back(step.input);
    numbers[2].push_back(step.exposed);
  }
  for (std::vector<double>& values : numbers) values = gather_values(communicator_, values);
  StepTimes times{.ranks = communicator_.size(), .cells = {}};
  for (std::size_t i = 0; i < numbers[0].size(); ++i) {
    times.cells.push_back({.total = numbers[0][i], .input = numbers[1][i], .exposed = numbers[2][i]});
  }
  return times;
}

Workload prepare_steps(comm::Communicator& communicator, const StepWork& work, io::IoDeadline& deadline) {
  if (work.input == InputFrom::data) return open_workload(communicator, work.train, &deadline);
  Workload workload;
  all_succeed_or_usage(communicator, [&] { workload = synthetic_workload(work, communicator.size()); });
  return workload;
}

}  // namespace lockstep::app
