#include "app/engine/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/engine/divergence.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

/// Returns a hash that differs between ranks that are in different steps or have different schedules (FNV-1a over the
/// numbers).
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

Trainer::Trainer(const Context& context, const model::LearningRateSchedule& schedule, std::int64_t accumulate,
                 NextMicroBatch next)
    : context_(context),
      schedule_(schedule),
      accumulate_(accumulate),
      input_(context.backend, context.training.model, std::move(next)),
      reduce_([this](std::size_t end) {
        context_.reducer.ready_up_to(end);
        // With a tree, a matrix product must have the same bits at any number of ranks, so it uses all processors.
        if (context_.tree == nullptr && context_.reducer.has_begun_to_reduce()) {
          context_.backend.use_processors(model::Backend::Processors::unreserved);
        }
      }),
      send_part_([this](std::size_t part) {  // `part`: a part of a bucket
        context_.reducer.gather(context_.training.parameters.weight_elements(model::Weights::current), part);
      }),
      micro_losses_(context.backend.is_host() ? 0 : static_cast<std::size_t>(accumulate - 1),
                    context.backend.host_memory()) {
  if (context.tree != nullptr) {
    term_losses_.emplace(context.backend,
                         static_cast<std::size_t>(context.tree->terms()) * context.training.model.loss_sum_count());
  }
}

Trainer::Result Trainer::step(const Request& request) {
  StopWatch watch;
  const double input_before = input_.waited_seconds(),
               exposed_before = context_.gradient_communicator.exposed_seconds();
  const RankStatus own = enqueue(request);
  input_.fetch_ahead(StagedInput::Ahead::next_step);  // while the device computes
  const StepOutcome outcome = wait(own);
  const double gradient_norm = std::sqrt(context_.training.status.posted().gradient_squares);
  if (outcome.not_finite_ranks > 0 || !std::isfinite(gradient_norm)) fail_not_finite(outcome, gradient_norm);

  const double learning_rate = schedule_.at(steps_done_);
  ++steps_done_;
  cursor_ = {.epoch = input_.current().epoch, .position = input_.current().next_position};
  account(watch.seconds(), input_.waited_seconds() - input_before,
          context_.gradient_communicator.exposed_seconds() - exposed_before);
  return {.figures = {.step = steps_done_,
                      .loss_sum = outcome.loss_sum,
                      .metric_sum = outcome.metric_sum * input_.current().metric_scale,
                      .losses = outcome.losses,
                      .samples = outcome.samples,
                      .learning_rate = learning_rate,
                      .gradient_norm = gradient_norm},
          .step_samples = static_cast<double>(input_.current().step_count),
          .stop_requests = outcome.stop_requests,
          .save_requests = outcome.save_requests,
          .save_due = outcome.save_due};
}

/// Enqueues the step up to its status. Returns this rank's contribution to the status.
RankStatus Trainer::enqueue(const Request& request) {
  RankStatus own{.stop_requested = request.stop, .save_requested = request.save, .save_due = request.save_due};
  context_.communicator.note_activity("forward and backward", steps_done_ + 1);
  input_.begin_step(request.error);
  for (std::int64_t micro = 0; micro < accumulate_; ++micro) {
    const MicroStep at{
        .index = static_cast<std::int32_t>(micro), .is_first = micro == 0, .is_last = micro + 1 == accumulate_};
    const MicroBatch& batch = input_.next();
    own.samples += static_cast<double>(batch.batch.count());
    if (at.is_last) prepare_update(own);
    replay(at, [this, at] {
      const model::Model::Forward output = forward(at);
      backward(output, at);
      if (at.is_last) update();
    });
    input_.release();
    if (at.is_last) break;
    input_.fetch_ahead(StagedInput::Ahead::same_step);
    check_loss(micro);
  }
  context_.training.status.post();
  context_.gradient_communicator.end_step();
  return own;
}

/// Runs work(), which enqueues a micro-step. A device may record the second occurrence and replay it from then on.
template <class Work>
void Trainer::replay(MicroStep at, const Work& work) {
  const MicroBatch& micro = input_.current();
  const std::array<std::int64_t, 7> key{at.is_first,
                                        at.is_last,
                                        context_.training.model.slot(),
                                        micro.batch.count(),
                                        micro.step_count,
                                        micro.batch.first_sequence,
                                        context_.tree != nullptr ? at.index : 0};
  if (at.is_first) context_.backend.mark_begin();
  context_.backend.repeat(key, work);
  if (at.is_last) context_.backend.mark_end();
}

model::Model::Forward Trainer::forward(MicroStep at) {
  model::Model& model = context_.training.model;
  const double scale = 1.0 / static_cast<double>(input_.current().step_count);
  if (context_.tree == nullptr)
    return model.forward(scale, at.is_first ? model::Accumulate::no : model::Accumulate::yes);
  if (at.is_first) context_.backend.fill_zero(term_losses_->tensor());
  return model.forward(scale, model::Accumulate::no, loss_sums(at.index));
}

/// The loss sums of a micro-step. With a tree, each term keeps its own sums until all terms are complete.
model::Tensor Trainer::loss_sums(std::int64_t micro) const {
  if (context_.tree == nullptr) return context_.training.model.loss_sums();
  const std::int64_t term = context_.tree->first_term(context_.communicator.rank()) + micro;
  const std::size_t width = context_.training.model.loss_sum_count();
  return term_losses_->at(static_cast<std::size_t>(term) * width, width);
}

void Trainer::backward(const model::Model::Forward& forward, MicroStep at) {
  static const model::GradientReady not_yet;
  if (at.is_last) context_.reducer.begin_step();
  if (context_.tree != nullptr) {
    context_.reducer.begin_term(at.index);
    context_.training.model.backward(forward, reduce_);
    context_.reducer.ready_up_to(context_.training.parameters.updated_elements());
    return;
  }
  context_.training.model.backward(forward, at.is_last ? reduce_ : not_yet);
  context_.backend.use_processors(model::Backend::Processors::all);
}

/// Prepares the host's inputs of the update, before the work that may be recorded.
void Trainer::prepare_update(RankStatus& own) {
  const MicroBatch& micro = input_.current();
  own.failed = !input_.error().empty();
  own.schedule_tag =
      schedule_tag(steps_done_, micro.step_count, micro.next_position, context_.reducer.schedule().size());
  context_.training.status.write(to_numbers(own));
  context_.training.optimizer.prepare(schedule_.at(steps_done_), steps_done_ + updates_ahead_);
}

/// The status counts terms whose loss is not finite. With a tree, loss and metric of the step are added once all terms
/// are complete.
void Trainer::report_losses() {
  model::StepStatusBuffer& status = context_.training.status;
  const std::int64_t parts = context_.tree == nullptr ? 1 : context_.tree->term_count(context_.communicator.rank());
  for (std::int64_t part = 0; part < parts; ++part) status.report_loss(loss_sums(part));
  context_.gradient_communicator.all_reduce(status.summed());
  if (context_.tree == nullptr) return;
  context_.gradient_communicator.all_reduce(term_losses_->tensor().elements<double>());
  context_.gradient_communicator.join();
  term_losses_->post();
}

/// Each term's sums come from one rank; the other ranks add zeros.
StepOutcome Trainer::add_term_losses(StepOutcome outcome) const {
  outcome.loss_sum = outcome.metric_sum = 0;
  outcome.losses = {};
  const std::span<const double> sums = term_losses_->posted();
  const std::size_t width = context_.training.model.loss_sum_count();
  for (std::size_t i = 0; i < sums.size(); i += width) {
    outcome.loss_sum += sums[i];
    outcome.metric_sum += sums[i + 1];
    for (std::size_t loss = model::kLossSums; loss < width; ++loss) {
      outcome.losses[loss - model::kLossSums] += sums[i + loss];
    }
  }
  return outcome;
}

/// The part of a step after its last backward pass. Enqueues without waiting.
void Trainer::update() {
  auto& [parameters, model, status, optimizer] = context_.training;
  context_.reducer.finish_step();
  if (context_.sums_further) {
    optimizer.sum_squares();
  } else {
    optimizer.finish_gradients();  // before the status is sent: it carries the norms if ranks share the update
  }
  report_losses();
  context_.gradient_communicator.join();
  if (!context_.updates) return;
  optimizer.update(send_part_);
  if (!optimizer.is_partitioned()) return;
  context_.reducer.finish_gathering();
  parameters.refresh_compute_copy(model::Weights::current);
}

/// On a host, finds a micro-step whose loss is not finite while its batch is still in memory. The step fails anyway, so
/// the gradients may be overwritten. On a device, does not wait: the result arrives with the end of the step.
void Trainer::check_loss(std::int64_t micro) {
  const model::Tensor loss = loss_sums(micro).slice({0, 1});
  if (!context_.backend.is_host()) {
    const std::span<double> copy = std::span(micro_losses_).subspan(static_cast<std::size_t>(micro), 1);
    return context_.backend.read(loss, std::as_writable_bytes(copy));
  }
  if (!input_.error().empty() || !not_finite_.empty() || std::isfinite(loss.elements<double>().front())) return;
  not_finite_ =
      fmt::format("{} in micro-step {} of {}", context_.training.model.locate_not_finite(), micro + 1, accumulate_);
}

/// Waits for the step. Throws if a rank could not compute its part.
StepOutcome Trainer::wait(const RankStatus& own) {
  try {
    context_.gradient_communicator.wait_for_step("forward, backward and all-reduce", steps_done_ + 1);
  } catch (const comm::PeerError& lost) {
    // The sums that failed contained the status with this rank's error.
    if (input_.error().empty()) throw;
    throw comm::PeerError(fmt::format("{}\n{}", input_.error(), lost.what()));
  }
  const StepOutcome outcome = outcome_of(context_.training.status.posted(), own, context_.communicator.size());
  if (outcome.failed_ranks > 0) {
    throw comm::ConsensusError(comm::gather_distinct(context_.communicator, input_.error()));
  }
  if (outcome.diverged) {
    throw comm::ConsensusError(
        fmt::format("step {}: the ranks are not in the same step of the same schedule; this is a bug in "
                    "lockstep, please report it with the run folder's log.txt",
                    steps_done_ + 1));
  }
  return context_.tree != nullptr ? add_term_losses(outcome) : outcome;
}

void Trainer::account(double whole, double input, double exposed) {
  const double device = context_.backend.device_seconds();
  // On a device, the exposed wait may belong to an earlier step, the last whose times were read. It is limited to this
  // step's time.
  if (device >= 0) exposed = std::min(exposed, device);
  time_.communication += exposed;
  if (device < 0) {
    time_.input += input;
    time_.compute += whole - input - exposed;
  } else {
    // The device's time counts as compute. Input is at most the time that the device was idle.
    time_.compute += device - exposed;
    time_.input += std::clamp(input, 0.0, std::max(0.0, whole - device));
  }
}

/// The source of a non-finite number on this rank; empty if its last batch shows none.
std::string Trainer::source_of_not_finite() const {
  if (!not_finite_.empty()) return not_finite_;
  const auto first = std::ranges::find_if(micro_losses_, [](double loss) { return !std::isfinite(loss); });
  if (first == micro_losses_.end()) return context_.training.model.locate_not_finite();
  return fmt::format("loss in micro-step {} of {}", first - micro_losses_.begin() + 1, accumulate_);
}

void Trainer::fail_not_finite(const StepOutcome& outcome, double gradient_norm) {
  // The reduction has mixed the gradients of all ranks: each rank recomputes its own part to find the source.
  const std::string source = source_of_not_finite();
  std::vector<std::string> sources;
  for (const comm::RankText& said :
       comm::gather_distinct(context_.communicator, source.empty() ? "" : "first in " + source)) {
    sources.push_back(comm::with_ranks(said));
  }
  if (sources.empty())
    sources.push_back(accumulate_ > 1 ? "in the sum over the micro-steps and ranks" : "in the sum over the ranks");
  throw Divergence(
      steps_done_ + 1, steps_done_,
      fmt::format(
          "step {}: {} is not finite: {}. The weights of step {} were not touched, and the last checkpoint is intact. "
          "A smaller --learning-rate, --warmup-steps or --clip-norm usually helps",
          steps_done_ + 1,
          outcome.not_finite_ranks > 0 ? "the loss" : fmt::format("the gradient norm ({})", gradient_norm),
          fmt::join(sources, "; "), steps_done_));
}

}  // namespace lockstep::app
