#include "app/trainer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace lockstep::app {

namespace {

/// Differs between ranks that are not in the same step of the same schedule (FNV-1a over the words).
std::uint32_t schedule_tag(std::int64_t step, std::int64_t step_count, std::int64_t next_position,
                           std::size_t buckets) {
  std::uint32_t hash = 2166136261u;
  for (const auto word : {step, step_count, next_position, static_cast<std::int64_t>(buckets)}) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ static_cast<std::uint32_t>((static_cast<std::uint64_t>(word) >> shift) & 0xff)) * 16777619u;
    }
  }
  return hash;
}

}  // namespace

MicroBatch next_micro_batch(io::Prefetcher& prefetcher, model::ElementType x_type) {
  const io::InputBatch& input = prefetcher.next();
  return {.batch = {.x = input.x.data(), .x_type = x_type, .y = input.y.data(), .count = input.count},
          .step_count = input.step_count,
          .epoch = input.epoch,
          .next_position = input.next_position};
}

Trainer::Trainer(model::Model& model, comm::Communicator& communicator, comm::GradientReducer& reducer,
                 const model::OptimizerOptions& optimizer, const model::LearningRateSchedule& schedule,
                 std::int64_t accumulate, NextMicroBatch next)
    : model_(model),
      communicator_(communicator),
      reducer_(reducer),
      optimizer_(optimizer),
      schedule_(schedule),
      accumulate_(accumulate),
      next_(std::move(next)),
      ready_([this](std::size_t end) { reducer_.ready_up_to(end); }) {}

std::string Trainer::accumulate_gradients(comm::StepVote& vote) {
  static const model::GradientReady not_yet;
  reducer_.begin_step();
  for (std::int64_t micro = 0; micro < accumulate_; ++micro) {
    try {
      micro_ = next_();
    } catch (const std::exception& e) {
      model_.zero_gradients(
          ready_);  // the others wait for our part of the reduction; the vote tells them why it is empty
      return e.what();
    }
    const bool last = micro + 1 == accumulate_;
    const model::LossSums sums =
        model_.forward_backward(micro_.batch, 1.0 / static_cast<double>(micro_.step_count),
                                micro == 0 ? model::Accumulate::no : model::Accumulate::yes, last ? ready_ : not_yet);
    // The gradients are this micro-step's alone to spoil: the step fails anyway.
    if (!last && not_finite_.empty() && !std::isfinite(sums.loss)) {
      not_finite_ =
          fmt::format("{} in micro-step {} of {}", model_.locate_not_finite(micro_.batch), micro + 1, accumulate_);
    }
    vote.loss_sum += sums.loss;
    vote.metric_sum += sums.metric;
    vote.samples += static_cast<double>(micro_.batch.count);
  }
  return {};
}

Trainer::Result Trainer::step(const Say& say) {
  StopWatch whole;
  const double waited_before = reducer_.exposed_seconds();
  communicator_.note_activity("forward and backward", steps_done_ + 1);

  comm::StepVote vote;
  std::string error = accumulate_gradients(vote);
  reducer_.finish_step();
  if (error.empty()) error = say.error;
  vote.failed = !error.empty();
  vote.not_finite = !std::isfinite(vote.loss_sum);
  vote.stop_requested = say.stop;
  vote.schedule_tag =
      vote.failed ? 0 : schedule_tag(steps_done_, micro_.step_count, micro_.next_position, reducer_.schedule().size());
  const double waited_in_buckets = reducer_.exposed_seconds() - waited_before;
  StopWatch voting;
  const comm::StepVerdict verdict = comm::vote(communicator_, vote);
  const double waited_in_vote = voting.seconds();

  if (verdict.failed_ranks > 0) {
    throw comm::AgreedError(fmt::format("{}", fmt::join(comm::gather_distinct(communicator_, error), "\n")));
  }
  if (verdict.diverged) {
    throw comm::AgreedError(
        fmt::format("step {}: the ranks are not in the same step of the same schedule; this is a bug in "
                    "lockstep, please report it with the run folder's log.txt",
                    steps_done_ + 1));
  }
  const double gradient_norm = model_.finish_gradients();
  if (verdict.not_finite_ranks > 0 || !std::isfinite(gradient_norm)) fail_not_finite(verdict, gradient_norm);

  const double learning_rate = schedule_.at(steps_done_);
  model_.update(model::update_rule(optimizer_, learning_rate, steps_done_, gradient_norm));
  ++steps_done_;

  const double total = whole.seconds();
  time_.communication += waited_in_buckets + waited_in_vote;
  time_.compute += total - waited_in_buckets - waited_in_vote;
  return {.figures = {.step = steps_done_,
                      .loss_sum = verdict.loss_sum,
                      .metric_sum = verdict.metric_sum,
                      .samples = verdict.samples,
                      .learning_rate = learning_rate,
                      .gradient_norm = gradient_norm},
          .stop_requests = verdict.stop_requests};
}

void Trainer::fail_not_finite(const comm::StepVerdict& verdict, double gradient_norm) {
  // The reduction has mixed the gradients of all ranks: each one recomputes its own part to find where it began.
  const std::string place = not_finite_.empty() ? model_.locate_not_finite(micro_.batch) : not_finite_;
  std::vector<std::string> places = comm::gather_distinct(communicator_, place.empty() ? "" : "first in " + place);
  if (places.empty())
    places.push_back(accumulate_ > 1 ? "in the sum over the micro-steps and ranks" : "in the sum over the ranks");
  throw comm::AgreedError(fmt::format(
      "step {}: {} is not finite: {}. The weights of step {} were not touched, and the last checkpoint is intact. "
      "A smaller --learning-rate, --warmup-steps or --clip-norm usually helps",
      steps_done_ + 1, verdict.not_finite_ranks > 0 ? "the loss" : fmt::format("the gradient norm ({})", gradient_norm),
      fmt::join(places, "; "), steps_done_));
}

}  // namespace lockstep::app
