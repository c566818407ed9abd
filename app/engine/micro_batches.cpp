#include "app/engine/micro_batches.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep::app {

BatchFeed::BatchFeed(io::Prefetcher& prefetcher, comm::Communicator& communicator, const Options& options)
    : prefetcher_(prefetcher),
      communicator_(communicator),
      options_(options),
      keys_(static_cast<std::size_t>(options.most), options.memory),
      weights_(options.weights != nullptr ? keys_.size() : 0, options.memory) {}

const io::InputBatch& BatchFeed::wait() {
  constexpr std::chrono::milliseconds kUsual{100};
  if (const io::InputBatch* const input = prefetcher_.next_within(kUsual)) return *input;
  const comm::LongOperation waiting(communicator_);
  return prefetcher_.next();  // the reader's own deadline ends the process
}

BatchFeed::Options feed_options(const Plan& plan, model::Backend& backend) {
  const Workload& workload = plan.workload;
  const Roles& roles = plan.agreement->roles();
  // A rank contributes a part of servers' sums, or a gradient of its own.
  return {.x_type = workload.training->x_type(),
          .y_type = workload.training->y_type(),
          .seed = workload.seed,
          .stateful = is_recurrent(*workload.network),
          .most = workload.work.largest_part,
          .memory = backend.host_memory(),
          .ranks = roles.training_ranks,
          .weights = workload.weights.empty() ? nullptr : &workload.weights,
          .sums = roles.sums_further};
}

std::int64_t BatchFeed::samples_together(std::int64_t all) const {
  if (options_.sums) return std::max<std::int64_t>(1, all);
  const int first = communicator_.first_rank(), end = first + communicator_.size();
  return std::max<std::int64_t>(1, all * end / options_.ranks - all * first / options_.ranks);
}

MicroBatch BatchFeed::next() {
  const double before = prefetcher_.stall_seconds();
  const io::InputBatch& input = wait();
  std::transform(input.samples.begin(), input.samples.end(), keys_.begin(),
                 [&](std::int64_t sample) { return model::sample_key(options_.seed, input.epoch, sample); });
  if (options_.weights != nullptr) options_.weights->write(input.samples, input.y, weights_);
  return {.batch = {.x = tensor_of(input.x, options_.x_type, input.count),
                    .y = tensor_of(input.y, options_.y_type, input.count),
                    .keys = model::host_tensor(keys_.data(), input.count, 1),
                    .weights = weights_.empty() ? model::Tensor{} : model::host_tensor(weights_.data(), input.count, 1),
                    .first_sequence = input.first_sequence,
                    .begins = options_.stateful && input.position == 0},
          .step_count = samples_together(input.step_count),
          .epoch = input.epoch,
          .next_position = input.next_position,
          .waited = prefetcher_.stall_seconds() - before};
}

StagedInput::StagedInput(model::Backend& backend, model::Model& model, NextMicroBatch next)
    : backend_(backend), model_(model), next_(std::move(next)) {}

MicroBatch StagedInput::fetch() {
  model_.wait_staged();
  const MicroBatch micro = next_();
  model_.stage(micro.batch);
  waited_seconds_ += micro.waited;
  return micro;
}

void StagedInput::take() {
  if (ahead_error_) std::rethrow_exception(std::exchange(ahead_error_, nullptr));
  current_ = ahead_ ? *std::exchange(ahead_, std::nullopt) : fetch();
}

const MicroBatch& StagedInput::next() {
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

void StagedInput::fetch_ahead() {
  if (backend_.is_host() || !error_.empty()) return;  // a host reads the reader's own memory: one batch at a time
  try {
    ahead_ = fetch();
  } catch (...) {
    ahead_error_ = std::current_exception();
  }
}

}  // namespace lockstep::app
