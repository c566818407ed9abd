#include "app/agree/local/local_rounds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "app/agree/round_sums.hpp"
#include "app/agree/stuck.hpp"
#include "app/engine/divergence.hpp"
#include "app/engine/trainer.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kDelayBesideNetwork =
    "--delay: the ranks of an island exchange gradients as messages, which cannot travel beside those of another "
    "island: let an island be of one host (--islands, --transport auto), or leave --delay out";

}  // namespace

LocalRounds::LocalRounds(const RoundsContext& context, const Islands& islands)
    : context_(context),
      plan_(context.plan),
      islands_(islands),
      own_island_(islands.of(context.communicator.rank())),
      speaks_(context.group.rank() == 0),
      fragments_(cut()) {
  const AgreeOptions& agree = plan_.settings.agree;
  if (agree.delay > 0) {
    comm::all_succeed(context.communicator, [&] {  // only one thread may call MPI, and another one sums
      if (context.group.uses_network()) throw std::runtime_error(kDelayBesideNetwork);
    });
  }
  const std::size_t elements = context.training.parameters.updated_elements();
  memory_ = context.communicator.reduction_memory(elements * sizeof(float));
  differences_ = {static_cast<float*>(memory_->allocate(elements * sizeof(float), alignof(float))), elements};
  std::fill(differences_.begin(), differences_.end(), 0.0f);
  anchor_.resize(elements);
  if (model::has_velocity(agree.outer)) {
    velocity_.resize(context.training.parameters.table().trained_elements());
  }
  if (agree.streams()) own_.resize(elements);
  if (agree.delay > 0) left_.resize(elements);
}

/// Cuts the elements into equal fragments. Their turns end at equal intervals of the round.
std::vector<LocalRounds::Fragment> LocalRounds::cut() const {
  const AgreeOptions& agree = plan_.settings.agree;
  const std::size_t elements = context_.training.parameters.updated_elements();
  const auto count = static_cast<std::size_t>(agree.fragments);
  std::vector<Fragment> fragments;
  for (std::size_t f = 0; f < count; ++f) {
    const std::size_t first = elements * f / count, last = elements * (f + 1) / count;
    const std::int64_t end = static_cast<std::int64_t>(f + 1) * agree.local_steps / agree.fragments;
    fragments.push_back({.first = first, .count = last - first, .start = end - agree.delay, .end = end});
  }
  return fragments;
}

void LocalRounds::forget(std::int64_t steps) {
  under_way_ = nullptr;
  divergence_.clear();
  own_restored_ = false;
  std::ranges::fill(velocity_, 0.0f);
  choose_ranks(steps);
}

void LocalRounds::choose_ranks(std::int64_t steps_done) {
  const bool apart = plan_.settings.agree.is_apart(steps_done);
  if (apart == apart_) return;
  apart_ = apart;
  context_.stepping.go_on_with(apart_ ? context_.group : context_.communicator);
}

void LocalRounds::take_over(const Standing& /*start*/) { take_anchor(); }

void LocalRounds::take_anchor() {
  context_.training.parameters.download_range("parameters", {.offset = 0, .count = anchor_.size()}, anchor_);
  if (!own_restored_) std::copy_n(anchor_.begin(), own_.size(), own_.begin());
  own_restored_ = false;
}

/// Makes a step of this island only. A diverged island makes no more steps; all ranks learn of it at the next
/// agreement.
StepResult LocalRounds::make_step(Trainer& trainer) {
  try {
    if (divergence_.empty()) return trainer.step({});
  } catch (const Divergence& divergence) {
    divergence_ = divergence.what();
  } catch (const comm::ConsensusError& error) {
    if (islands_.count() == 1) throw;
    throw comm::PeerError(error.what());  // the other islands are in the middle of their rounds
  }
  return {};
}

/// Makes the steps of the round. Returns sums over them, with rate and norm of the last step.
StepResult LocalRounds::steps(Trainer& trainer) {
  const AgreeOptions& agree = plan_.settings.agree;
  const std::int64_t total = plan_.workload.work.total_steps, before = trainer.steps_done();
  Progress progress{.before = before, .done = before};
  StepResult sums;
  mean_rate_ = 0;
  do {
    const StepResult step = make_step(trainer);
    ++progress.done;
    sums.figures.step = step.figures.step;
    sums.figures.loss_sum += step.figures.loss_sum;
    sums.figures.metric_sum += step.figures.metric_sum;
    for (std::size_t i = 0; i < sums.figures.losses.size(); ++i) sums.figures.losses[i] += step.figures.losses[i];
    sums.figures.samples += step.figures.samples;
    sums.figures.learning_rate = step.figures.learning_rate;
    sums.figures.gradient_norm = step.figures.gradient_norm;
    // A running mean: it is exact if all rates are equal.
    mean_rate_ += (step.figures.learning_rate - mean_rate_) / static_cast<double>(progress.done - before);
    progress.samples = divergence_.empty() ? sums.figures.samples : std::numeric_limits<double>::quiet_NaN();
    if (progress.done < total) {
      agree_on_what_is_due(trainer, progress);
    } else {
      agree_on_all(trainer, progress);
    }
  } while (agree.round_begin(progress.done) != progress.done && progress.done < total);
  return sums;
}

void LocalRounds::agree_on_what_is_due(Trainer& trainer, const Progress& progress) {
  const AgreeOptions& agree = plan_.settings.agree;
  const std::int64_t round = agree.round_begin(progress.done - 1);
  const std::int64_t step = progress.done - round, before = progress.before - round;
  for (const Fragment& fragment : fragments_) {
    if (fragment.end <= before || step < fragment.start || step > fragment.end) continue;
    if (under_way_ != &fragment) start(trainer, fragment, progress);
    if (step == fragment.end) finish(trainer, agree.outer, progress);
  }
}

/// At the run's last step, averages the movements since each fragment's last agreement, without momentum.
void LocalRounds::agree_on_all(Trainer& trainer, const Progress& progress) {
  agree_on_what_is_due(trainer, progress);
  const AgreeOptions& agree = plan_.settings.agree;
  if (under_way_ != nullptr) finish(trainer, agree.outer, progress);
  const std::int64_t step = progress.done - agree.round_begin(progress.done - 1);
  for (const Fragment& fragment : fragments_) {
    if (fragment.end == step && agree.delay == 0) continue;
    start(trainer, fragment, progress);
    finish(trainer, {.kind = model::OuterOptimizerKind::average}, progress);
  }
}

/// Starts the sum of a fragment. An island's movement is weighted by its samples; one rank of the island contributes
/// it, and the others add zeros.
void LocalRounds::start(Trainer& trainer, const Fragment& fragment, const Progress& progress) {
  const StopWatch watch;
  const std::size_t first = fragment.first, last = first + fragment.count;
  const std::span<const float> now = weights();
  const auto share = static_cast<float>(progress.samples);
  for (std::size_t i = first; i < last; ++i) differences_[i] = speaks_ ? share * (anchor_[i] - now[i]) : 0;
  if (!left_.empty()) std::copy(now.begin() + first, now.begin() + last, left_.begin() + first);
  samples_ = {speaks_ ? progress.samples : 0};
  under_way_ = &fragment;
  be_patient(progress.done);
  context_.communicator.all_reduce(std::span(samples_));
  context_.communicator.all_reduce(differences_.subspan(first, fragment.count));
  trainer.add_communication(watch.seconds());
}

void LocalRounds::finish(Trainer& trainer, const model::OuterOptimizerOptions& outer, const Progress& progress) {
  const StopWatch watch;
  context_.communicator.wait("agreeing on the weights", progress.done);
  if (!std::isfinite(samples_[0])) fail(progress);
  const auto [first, count, started, ended] = *under_way_;
  under_way_ = nullptr;
  const auto scale = static_cast<float>(1 / samples_[0]);
  const std::span<float> movement = differences_.subspan(first, count),
                         anchor = std::span(anchor_).subspan(first, count);
  for (float& difference : movement) difference *= scale;
  const std::size_t all_trained = context_.training.parameters.table().trained_elements();
  const std::size_t trained = std::min(count, all_trained - std::min(first, all_trained));
  const std::span<float> velocity = !model::has_velocity(outer)
                                        ? std::span<float>()
                                        : std::span(velocity_).subspan(std::min(first, all_trained), trained);
  model::outer_update(outer, anchor.first(trained), velocity, movement.first(trained), mean_rate_);
  // Elements that are not trained (running means and variances) become the mean of the islands, without momentum.
  model::outer_update({.kind = model::OuterOptimizerKind::average}, anchor.subspan(trained), {},
                      movement.subspan(trained));
  const std::span<float> now = weights().subspan(first, count);
  for (std::size_t i = 0; i < count; ++i) now[i] = left_.empty() ? anchor[i] : anchor[i] + (now[i] - left_[first + i]);
  context_.training.parameters.refresh_compute_copy(model::Weights::current);
  trainer.add_communication(watch.seconds());
}

/// Collective: throws because an island has diverged.
void LocalRounds::fail(const Progress& progress) {
  const std::vector<comm::RankText> said = comm::gather_distinct(context_.communicator, divergence_);
  context_.communicator.set_deadline(plan_.settings.execution.deadline);
  throw Divergence(progress.done, progress.before, comm::with_ranks_unless_all(said.front()));
}

/// Raises the deadline for the rest of the round, because other islands may be slower.
void LocalRounds::be_patient(std::int64_t steps_done) {
  const AgreeOptions& agree = plan_.settings.agree;
  const ExecutionOptions& execution = plan_.settings.execution;
  const std::int64_t done = steps_done - agree.round_begin(steps_done - 1);
  const double whole_round = round_.seconds() * static_cast<double>(agree.local_steps) / static_cast<double>(done);
  context_.communicator.set_deadline(stuck_after(execution, whole_round));
  context_.communicator.note_activity("waiting for the other islands", steps_done);
}

StepResult LocalRounds::step_of_all(Trainer& trainer, const LoopCalls& calls) {
  const StepResult result = trainer.step(calls.ask());
  choose_ranks(trainer.steps_done());
  if (apart_) take_anchor();
  return result;
}

StepResult LocalRounds::advance(Trainer& trainer, std::int64_t /*until*/, const LoopCalls& calls) {
  if (!apart_) return step_of_all(trainer, calls);
  round_ = {};
  context_.communicator.note_activity("local steps", trainer.steps_done() + 1);
  if (!own_.empty()) std::copy(own_.begin(), own_.end(), weights().begin());
  context_.training.parameters.refresh_compute_copy(model::Weights::current);
  const StepResult result = steps(trainer);
  if (!own_.empty()) {
    std::ranges::copy(weights(), own_.begin());
    std::copy(anchor_.begin(), anchor_.end(), weights().begin());
    context_.training.parameters.refresh_compute_copy(model::Weights::current);
  }
  const StepRequest wanted = calls.ask();
  const StopWatch agreeing;
  be_patient(trainer.steps_done());
  RoundSums own;
  if (speaks_) own.add(result.figures);
  own.add(wanted);
  const RoundSums sums = sum_over_ranks(context_.communicator, own, "agreeing on a round", trainer.steps_done());
  if (sums.failed > 0) throw comm::ConsensusError(comm::gather_distinct(context_.communicator, wanted.error));
  context_.communicator.set_deadline(plan_.settings.execution.deadline);
  trainer.add_communication(agreeing.seconds());
  StepFigures figures = sums.figures(result.figures.step);
  figures.learning_rate = result.figures.learning_rate;
  figures.gradient_norm = result.figures.gradient_norm;
  return sums.result(figures);
}

/// Collective. Fills `out` with an island's state; a rank whose `out` is empty only takes part.
void LocalRounds::save_inner_state(const std::string& group, int island, std::span<float> out) {
  const int root = islands_.first_rank(island);
  if (!context_.training.parameters.owned().whole()) {
    if (own_island_ == island) {
      for (const comm::Slice& bucket : context_.buckets) {
        gather_bucket(context_.group, context_.training.parameters, group, bucket,
                      differences_.subspan(bucket.offset, bucket.count));
      }
    }
  } else if (!apart_ || context_.communicator.rank() == root) {
    context_.training.parameters.download_group(group, differences_);
  }
  if (apart_) {
    context_.communicator.broadcast(std::as_writable_bytes(differences_), root);
    context_.communicator.wait("bringing together the islands' state");
  }
  if (!out.empty()) std::copy(differences_.begin(), differences_.end(), out.begin());
}

CarriedGroup LocalRounds::weights_of(int island) {
  return {.name = fmt::format("parameters_of_island_{}", island),
          .save =
              [this, island](std::span<float> out) {
                const int root = islands_.first_rank(island);
                if (!apart_) {
                  context_.training.parameters.download_group("parameters", differences_);
                } else {
                  if (context_.communicator.rank() == root) std::ranges::copy(own_, differences_.begin());
                  context_.communicator.broadcast(std::as_writable_bytes(differences_), root);
                  context_.communicator.wait("bringing together the islands' weights");
                }
                if (!out.empty()) std::copy(differences_.begin(), differences_.end(), out.begin());
              },
          .restore =
              [this, island](std::span<const float> in) {
                if (!apart_ || own_island_ != island) return;
                std::copy_n(in.begin(), own_.size(), own_.begin());
                own_restored_ = true;
              }};
}

std::vector<CarriedGroup> LocalRounds::carried() {
  std::vector<CarriedGroup> groups;
  if (!velocity_.empty()) {
    groups.push_back({.name = "outer_velocity",
                      .save =
                          [this](std::span<float> out) {
                            if (!out.empty()) std::copy(velocity_.begin(), velocity_.end(), out.begin());
                          },
                      .restore =
                          [this](std::span<const float> in) {
                            if (apart_) std::copy_n(in.begin(), velocity_.size(), velocity_.begin());
                          }});
  }
  for (int island = 0; island < islands_.count(); ++island) {
    if (!own_.empty()) groups.push_back(weights_of(island));
    if (island == 0) continue;
    for (const std::string& group : context_.training.parameters.state_groups()) {
      if (group == "parameters") continue;
      groups.push_back({.name = fmt::format("{}_of_island_{}", group, island),
                        .save = [this, group, island](std::span<float> out) { save_inner_state(group, island, out); },
                        .restore =
                            [this, group, island](std::span<const float> in) {
                              if (apart_ && own_island_ == island) context_.training.parameters.upload_group(group, in);
                            }});
    }
  }
  return groups;
}

}  // namespace lockstep::app
