#include "app/engine/micro_batches.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "app/data/network_input.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

BatchFeed::BatchFeed(io::Prefetcher& prefetcher, comm::Communicator& communicator, const Options& options,
                     MaskLabels masks)
    : prefetcher_(prefetcher),
      communicator_(communicator),
      options_(options),
      keys_(static_cast<std::size_t>(options.most), options.memory),
      weights_(options.weights != nullptr && !masks.are_masks() ? keys_.size() : 0, options.memory),
      masks_(std::move(masks)),
      counts_(options.labels != nullptr ? static_cast<std::size_t>(options.labels->info().classes) : 0) {}

const io::InputBatch& BatchFeed::wait() {
  constexpr std::chrono::milliseconds kUsual{100};
  if (const io::InputBatch* const input = prefetcher_.next_within(kUsual)) return *input;
  const comm::LongOperation waiting(communicator_);
  return prefetcher_.next();  // the reader's own deadline ends the process
}

BatchFeed make_feed(const Plan& plan, model::Backend& backend, io::Prefetcher& prefetcher,
                    comm::Communicator& communicator, std::int64_t micro_steps) {
  const Workload& workload = plan.workload;
  const Roles& roles = plan.agreement->roles();
  MaskLabels masks(*workload.network, workload.model, workload.work.largest_part, backend.host_memory());
  const io::Dataset* const labels = masks.are_weighted() ? workload.training.get() : nullptr;
  // A rank contributes to a sum on servers, or makes a gradient of its own.
  const BatchFeed::Options options{.x_type = workload.training->x_type(),
                                   .y_type = workload.training->y_type(),
                                   .seed = workload.options.work.seed,
                                   .stateful = is_recurrent(*workload.network),
                                   .most = workload.work.largest_part,
                                   .memory = backend.host_memory(),
                                   .ranks = roles.training_ranks,
                                   .weights = workload.weights.empty() ? nullptr : &workload.weights,
                                   .labels = labels,
                                   .micro_steps = micro_steps,
                                   .sums = roles.sums_further};
  return {prefetcher, communicator, options, std::move(masks)};
}

NextMicroBatch batches_of(BatchFeed& feed) {
  return {.next = [&feed] { return feed.next(); }, .miss = [&feed] { feed.miss(); }};
}

std::int64_t BatchFeed::samples_together(std::int64_t all) const {
  if (options_.sums) return std::max<std::int64_t>(1, all);
  const int first = communicator_.first_rank(), end = first + communicator_.size();
  return std::max<std::int64_t>(1, all * end / options_.ranks - all * first / options_.ranks);
}

void BatchFeed::miss() {
  if (options_.labels == nullptr) return;
  std::ranges::fill(counts_, 0.0);
  share_counts();
}

void BatchFeed::share_counts() {
  if (communicator_.size() == 1) return;
  communicator_.all_reduce(std::span<double>(counts_));
  communicator_.wait("counting the labels of a step");
}

/// Counts the labels of this rank's micro-batches of the step. It reads the labels of later micro-batches for this;
/// they are read again when those micro-batches arrive.
void BatchFeed::count_labels(const io::InputBatch& input, std::span<const std::int32_t> labels) {
  MaskLabels::count(labels, counts_);
  if (input.of_step.size() <= input.samples.size()) return;
  const auto most = static_cast<std::size_t>(options_.most);
  std::vector<std::byte> y;
  std::vector<std::uint64_t> keys;
  for (std::size_t at = input.samples.size(); at < input.of_step.size(); at += most) {
    const auto samples = input.of_step.subspan(at, std::min(most, input.of_step.size() - at));
    y.resize(samples.size() * options_.labels->y_bytes());
    options_.labels->read(samples, input.epoch, {}, y);
    keys.clear();
    for (const std::int64_t sample : samples) keys.push_back(model::sample_key(options_.seed, input.epoch, sample));
    MaskLabels::count(masks_.labels(y, keys), counts_);
  }
}

/// Computes the factors of the classes. Throws if no position of the step has a class with a weight.
void BatchFeed::set_factors(std::int64_t samples) {
  const std::span<const float> weights =
      options_.weights != nullptr ? options_.weights->of_classes() : std::span<const float>{};
  double positions = 0, weighted = 0;
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    positions += counts_[c];
    weighted += counts_[c] * (weights.empty() ? 1 : static_cast<double>(weights[c]));
  }
  if (!(weighted > 0)) {
    throw io::FileError(fmt::format(
        "{}: a step of {} has no position whose class counts: there is nothing to learn from; give a larger batch, or "
        "leave samples without such positions out",
        options_.labels->shards().front().file.string(), counted(samples, "sample")));
  }
  const double all = static_cast<double>(samples) * static_cast<double>(masks_.positions());
  metric_scale_ = all / positions;
  factors_.resize(counts_.size());
  for (std::size_t c = 0; c < factors_.size(); ++c) {
    factors_[c] = static_cast<float>((weights.empty() ? 1 : static_cast<double>(weights[c])) * (all / weighted));
  }
}

/// Sets the labels of the batch, and weights if its positions need them.
void BatchFeed::take_labels(const io::InputBatch& input, model::Batch& batch) {
  const std::span<const std::uint64_t> keys = std::span(keys_).first(static_cast<std::size_t>(input.count));
  std::span<const std::int32_t> labels = masks_.labels(input.y, keys);
  if (options_.labels != nullptr && micro_ == 0) {
    std::exception_ptr error;
    try {
      count_labels(input, labels);
    } catch (...) {
      error = std::current_exception();
    }
    share_counts();  // the other ranks wait for this rank's counts
    if (error) std::rethrow_exception(error);
    set_factors(samples_together(input.step_count));
    labels = masks_.labels(input.y, keys);  // counting may have overwritten the memory of the labels
  }
  const auto positions = static_cast<std::int64_t>(masks_.positions());
  batch.y = {const_cast<std::int32_t*>(labels.data()), model::ElementType::int32, input.count, positions};
  if (options_.labels == nullptr) return;
  const std::span<const float> weights = masks_.weights(labels, factors_);
  batch.weights = {const_cast<float*>(weights.data()), model::ElementType::float32, input.count, positions};
}

MicroBatch BatchFeed::next() {
  const double before = prefetcher_.stall_seconds();
  const bool shares = options_.labels != nullptr && micro_ == 0;
  if (shares) std::ranges::fill(counts_, 0.0);
  const io::InputBatch* arrived = nullptr;
  try {
    arrived = &wait();
  } catch (...) {
    if (shares) share_counts();  // the other ranks wait for this rank's counts
    throw;
  }
  const io::InputBatch& input = *arrived;
  std::transform(input.samples.begin(), input.samples.end(), keys_.begin(),
                 [&](std::int64_t sample) { return model::sample_key(options_.seed, input.epoch, sample); });
  if (options_.weights != nullptr && !masks_.are_masks()) options_.weights->write(input.samples, input.y, weights_);
  MicroBatch micro{
      .batch = {.x = tensor_of(input.x, options_.x_type, input.count),
                .y = tensor_of(input.y, options_.y_type, input.count),
                .keys = model::host_tensor(keys_.data(), input.count, 1),
                .weights = weights_.empty() ? model::Tensor{} : model::host_tensor(weights_.data(), input.count, 1),
                .first_sequence = input.first_sequence,
                .begins = options_.stateful && input.position == 0},
      .step_count = samples_together(input.step_count),
      .epoch = input.epoch,
      .next_position = input.next_position,
      .waited = prefetcher_.stall_seconds() - before};
  if (masks_.are_masks()) take_labels(input, micro.batch);
  micro.metric_scale = metric_scale_;
  micro_ = (micro_ + 1) % options_.micro_steps;
  return micro;
}

StagedInput::StagedInput(model::Backend& backend, model::Model& model, NextMicroBatch next)
    : backend_(backend), model_(model), next_(std::move(next)) {}

MicroBatch StagedInput::fetch() {
  model_.wait_staged();
  const MicroBatch micro = next_.next();
  model_.stage(micro.batch);
  waited_seconds_ += micro.waited;
  return micro;
}

void StagedInput::take() {
  if (ahead_error_) std::rethrow_exception(std::exchange(ahead_error_, nullptr));
  current_ = ahead_ ? *std::exchange(ahead_, std::nullopt) : fetch();
}

const MicroBatch& StagedInput::next() {
  const bool begins = std::exchange(begins_, false);
  if (!error_.empty() && begins && !ahead_ && !ahead_error_ && next_.miss) next_.miss();
  if (error_.empty()) {
    try {
      take();
      return current_;
    } catch (const std::exception& failure) {
      error_ = failure.what();
      if (error_.empty()) error_ = "an error without a text";
    }
  }
  current_.batch = {};
  current_.step_count = std::max<std::int64_t>(current_.step_count, 1);
  model_.stage(current_.batch);
  return current_;
}

void StagedInput::fetch_ahead(Ahead ahead) {
  if (backend_.is_host()) return;  // a host reads the reader's own memory: one batch at a time
  if (!error_.empty()) {
    if (ahead == Ahead::next_step && next_.miss) next_.miss();
    return;
  }
  try {
    ahead_ = fetch();
  } catch (...) {
    ahead_error_ = std::current_exception();
  }
}

}  // namespace lockstep::app
