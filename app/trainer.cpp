#include "app/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace lockstep::app {

namespace {

static_assert(model::kBallotSize == comm::kBallotSize);

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

BatchFeed::BatchFeed(io::Prefetcher& prefetcher, const Options& options)
    : prefetcher_(prefetcher), options_(options), keys_(static_cast<std::size_t>(options.most), options.memory) {}

BatchFeed::Options feed_options(const TrainOptions& options, const Workload& workload, model::Backend& backend) {
  return {.x_type = element_type(workload.training->x_type()),
          .seed = options.seed,
          .streams = takes_streams(*workload.network),
          .most = workload.work.largest_part,
          .memory = backend.host_memory()};
}

MicroBatch BatchFeed::next() {
  const double before = prefetcher_.stall_seconds();
  const io::InputBatch& input = prefetcher_.next();
  std::transform(input.samples.begin(), input.samples.end(), keys_.begin(),
                 [&](std::int64_t sample) { return model::sample_key(options_.seed, input.epoch, sample); });
  return {.batch = {.x = input.x.data(),
                    .x_type = options_.x_type,
                    .y = input.y.data(),
                    .count = input.count,
                    .keys = keys_.data(),
                    .first_lane = input.first_lane,
                    .begins = options_.streams && input.position == 0},
          .step_count = input.step_count,
          .epoch = input.epoch,
          .next_position = input.next_position,
          .waited = prefetcher_.stall_seconds() - before};
}

Trainer::Trainer(const Parts& parts, const model::OptimizerOptions& optimizer,
                 const model::LearningRateSchedule& schedule, std::int64_t accumulate, NextMicroBatch next)
    : parts_(parts),
      optimizer_(optimizer),
      schedule_(schedule),
      accumulate_(accumulate),
      next_(std::move(next)),
      ready_([this](std::size_t end) { parts_.reducer.ready_up_to(end); }),
      updated_([this](std::size_t part) {
        parts_.reducer.gather(parts_.model.weights(model::Weights::current), part);  // a part is of a bucket
      }) {}

MicroBatch Trainer::fetch() {
  parts_.model.wait_staged();
  const MicroBatch micro = next_();
  parts_.model.stage(micro.batch);
  input_seconds_ += micro.waited;
  return micro;
}

void Trainer::take_next() {
  if (ahead_error_) std::rethrow_exception(std::exchange(ahead_error_, nullptr));
  micro_ = ahead_ ? *std::exchange(ahead_, std::nullopt) : fetch();
}

void Trainer::look_ahead() {
  if (parts_.backend.is_host()) return;  // it works on the reader's own memory: one batch at a time
  try {
    ahead_ = fetch();
  } catch (...) {
    ahead_error_ = std::current_exception();
  }
}

/// All of a step after its last backward pass. Enqueues, waits for nothing.
void Trainer::conclude() {
  parts_.reducer.finish_step();
  parts_.model.finish_gradients();  // before the ballot: where ranks share the update it carries their norms
  parts_.model.tally();
  parts_.reduction.sum(parts_.model.ballot());
  parts_.reduction.join();
  parts_.model.update(updated_);
  parts_.model.post_results();
  if (parts_.model.updates_all()) return;
  parts_.reducer.finish_gathering();
  parts_.model.parameters_were_brought();
}

void Trainer::micro_step(bool first, bool last) {
  if (first) parts_.backend.mark_begin();
  const std::array<std::int64_t, 6> key{
      first, last, parts_.model.slot(), micro_.batch.count, micro_.step_count, micro_.batch.first_lane};
  parts_.backend.repeat(key, [this, first, last] {
    static const model::GradientReady not_yet;
    if (last) parts_.reducer.begin_step();
    parts_.model.forward_backward(1.0 / static_cast<double>(micro_.step_count),
                                  first ? model::Accumulate::no : model::Accumulate::yes, last ? ready_ : not_yet);
    if (last) conclude();
  });
  if (last) parts_.backend.mark_end();
  parts_.model.release_batch();
}

/// The vote as it went out, and why this rank failed (empty: it did not).
std::string Trainer::work(const Say& say, comm::StepVote& vote) {
  std::string error = say.error;
  vote.stop_requested = say.stop;
  std::int64_t micro = 0;
  for (; micro < accumulate_ && error.empty(); ++micro) {
    try {
      take_next();
    } catch (const std::exception& e) {
      error = e.what();
      break;
    }
    const bool last = micro + 1 == accumulate_;
    vote.samples += static_cast<double>(micro_.batch.count);
    if (last) {
      vote.schedule_tag =
          schedule_tag(steps_done_, micro_.step_count, micro_.next_position, parts_.reducer.schedule().size());
      parts_.model.write_ballot(comm::ballot_of(vote));
      parts_.model.write_rule(model::update_rule(optimizer_, schedule_.at(steps_done_), steps_done_));
    }
    micro_step(micro == 0, last);
    if (!last && parts_.backend.is_host() && not_finite_.empty() && !parts_.model.sums_are_finite()) {
      // The gradients are this micro-step's alone to spoil: the step fails anyway.
      not_finite_ = fmt::format("{} in micro-step {} of {}", parts_.model.locate_not_finite(), micro + 1, accumulate_);
    }
    look_ahead();
  }
  if (!error.empty()) {
    // The others wait for our part of the sums, of all micro-steps; the vote tells them why it is empty.
    static const model::GradientReady not_yet;
    vote.failed = true;
    parts_.model.write_ballot(comm::ballot_of(vote));
    for (; micro + 1 < accumulate_; ++micro) parts_.model.take_part_with_nothing(not_yet);
    parts_.reducer.begin_step();
    parts_.model.take_part_with_nothing(ready_);
    conclude();
  }
  return error;
}

Trainer::Result Trainer::step(const Say& say) {
  StopWatch whole;
  const double input_before = input_seconds_, exposed_before = parts_.reduction.exposed_seconds();
  parts_.communicator.note_activity("forward and backward", steps_done_ + 1);
  comm::StepVote vote;
  const std::string error = work(say, vote);
  try {
    parts_.reduction.wait("forward, backward and all-reduce", steps_done_ + 1);
  } catch (const comm::PeerError& lost) {
    // The vote that would have told the others what went wrong here went with the sums.
    if (error.empty()) throw;
    throw comm::PeerError(fmt::format("{}\n{}", error, lost.what()));
  }

  const model::Model::Results results = parts_.model.results();
  const comm::StepVerdict verdict =
      comm::count_ballots(std::span<const double, comm::kBallotSize>(results.ballot), vote, parts_.communicator.size());
  if (verdict.failed_ranks > 0) {
    throw comm::AgreedError(fmt::format("{}", fmt::join(comm::gather_distinct(parts_.communicator, error), "\n")));
  }
  if (verdict.diverged) {
    throw comm::AgreedError(
        fmt::format("step {}: the ranks are not in the same step of the same schedule; this is a bug in "
                    "lockstep, please report it with the run folder's log.txt",
                    steps_done_ + 1));
  }
  if (verdict.not_finite_ranks > 0 || !std::isfinite(results.gradient_norm)) {
    fail_not_finite(verdict, results.gradient_norm);
  }
  const double learning_rate = schedule_.at(steps_done_);
  ++steps_done_;

  account(whole.seconds(), input_seconds_ - input_before, parts_.reduction.exposed_seconds() - exposed_before);
  return {.figures = {.step = steps_done_,
                      .loss_sum = verdict.loss_sum,
                      .metric_sum = verdict.metric_sum,
                      .samples = verdict.samples,
                      .learning_rate = learning_rate,
                      .gradient_norm = results.gradient_norm},
          .stop_requests = verdict.stop_requests};
}

void Trainer::account(double whole, double input, double exposed) {
  const double device = parts_.backend.device_seconds();
  time_.communication += exposed;
  if (device < 0) {
    time_.input += input;
    time_.compute += whole - input - exposed;
  } else {
    // What the device did counts; the reader's part is what it kept the device waiting, at most.
    time_.compute += device - exposed;
    time_.input += std::clamp(input, 0.0, std::max(0.0, whole - device));
  }
}

void Trainer::fail_not_finite(const comm::StepVerdict& verdict, double gradient_norm) {
  // The reduction has mixed the gradients of all ranks: each one recomputes its own part to find where it began.
  const std::string place = not_finite_.empty() ? parts_.model.locate_not_finite() : not_finite_;
  std::vector<std::string> places =
      comm::gather_distinct(parts_.communicator, place.empty() ? "" : "first in " + place);
  if (places.empty())
    places.push_back(accumulate_ > 1 ? "in the sum over the micro-steps and ranks" : "in the sum over the ranks");
  throw comm::AgreedError(fmt::format(
      "step {}: {} is not finite: {}. The weights of step {} were not touched, and the last checkpoint is intact. "
      "A smaller --learning-rate, --warmup-steps or --clip-norm usually helps",
      steps_done_ + 1, verdict.not_finite_ranks > 0 ? "the loss" : fmt::format("the gradient norm ({})", gradient_norm),
      fmt::join(places, "; "), steps_done_));
}

}  // namespace lockstep::app
