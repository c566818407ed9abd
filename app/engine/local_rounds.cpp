#include "app/engine/local_rounds.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "app/report/stop_watch.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

namespace {

/// How much longer than this one another island may take for its round before it counts as stuck.
constexpr double kMostTimesSlower = 10;

}  // namespace

LocalRounds::LocalRounds(const Parts& parts, const Plan& plan)
    : parts_(parts),
      plan_(plan),
      own_island_(plan.islands->of(parts.communicator.rank())),
      speaks_(parts.island.rank() == 0) {
  const std::size_t elements = parts.training.parameters.updated_elements();
  memory_ = parts.communicator.reduction_memory(elements * sizeof(float));
  differences_ = {static_cast<float*>(memory_->allocate(elements * sizeof(float), alignof(float))), elements};
  std::fill(differences_.begin(), differences_.end(), 0.0f);
  anchor_.resize(elements);
  if (model::has_velocity(plan.settings.agree.outer)) {
    velocity_.resize(parts.training.parameters.table().trained_elements());
  }
}

void LocalRounds::start_at(std::int64_t steps_done) {
  const bool apart = plan_.settings.agree.is_apart(steps_done);
  if (apart == apart_) return;
  apart_ = apart;
  parts_.stepping.go_on_with(apart_ ? parts_.island : parts_.communicator);
}

void LocalRounds::begin() {
  parts_.training.parameters.download_range("parameters", {.offset = 0, .count = anchor_.size()}, anchor_);
}

/// The sums over the island, and what its last step says.
Trainer::Result LocalRounds::steps(Trainer& trainer) {
  const AgreeOptions& agree = plan_.settings.agree;
  const std::int64_t total = plan_.workload.work.total_steps;
  Trainer::Result sums;
  do {
    const Trainer::Result step = trainer.step({});
    sums.figures.step = step.figures.step;
    sums.figures.loss_sum += step.figures.loss_sum;
    sums.figures.metric_sum += step.figures.metric_sum;
    sums.figures.samples += step.figures.samples;
    sums.figures.learning_rate = step.figures.learning_rate;
    sums.figures.gradient_norm = step.figures.gradient_norm;
  } while (agree.round_begin(trainer.steps_done()) != trainer.steps_done() && trainer.steps_done() < total);
  return sums;
}

Trainer::Result LocalRounds::step_of_all(Trainer& trainer, const std::function<Trainer::Request()>& ask) {
  const Trainer::Result result = trainer.step(ask());
  start_at(trainer.steps_done());
  if (apart_) begin();
  return result;
}

Trainer::Result LocalRounds::round(Trainer& trainer, const std::function<Trainer::Request()>& ask) {
  if (!apart_) return step_of_all(trainer, ask);
  const StopWatch watch;
  parts_.communicator.note_activity("local steps", trainer.steps_done() + 1);
  Trainer::Result result;
  try {
    result = steps(trainer);
  } catch (const comm::AgreedError& error) {
    if (plan_.islands->count() == 1) throw;
    throw comm::PeerError(error.what());  // the other islands are in the middle of their rounds
  }
  const Trainer::Request wanted = ask();
  const double own_samples = result.figures.samples;
  const StopWatch agreeing;
  const ExecutionOptions& execution = plan_.settings.execution;
  const double usual =
      parts_.communicator.set_deadline(execution.deadline + execution.io_deadline + kMostTimesSlower * watch.seconds());
  parts_.communicator.note_activity("waiting for the other islands", trainer.steps_done());
  const double mine = speaks_ ? 1 : 0;
  std::array<double, 7> sums{mine * result.figures.loss_sum,  mine * result.figures.metric_sum,
                             mine * result.figures.samples,   wanted.stop ? 1.0 : 0.0,
                             wanted.save ? 1.0 : 0.0,         wanted.save_due ? 1.0 : 0.0,
                             wanted.error.empty() ? 0.0 : 1.0};
  parts_.communicator.all_reduce(std::span(sums));
  parts_.communicator.wait("agreeing on a round", trainer.steps_done());
  if (sums[6] > 0) throw comm::AgreedError(comm::gather_distinct(parts_.communicator, wanted.error));
  result.figures.loss_sum = sums[0];
  result.figures.metric_sum = sums[1];
  result.figures.samples = sums[2];
  result.stop_requests = static_cast<int>(sums[3]);
  result.save_requests = static_cast<int>(sums[4]);
  result.save_due = sums[5] > 0;
  agree(mine * own_samples / sums[2], trainer.steps_done());
  parts_.communicator.set_deadline(usual);
  trainer.add_communication(agreeing.seconds());
  return result;
}

/// Each island's way counts as much as its samples; one of its ranks says it, the others' zeros change nothing.
void LocalRounds::agree(double weight, std::int64_t step) {
  model::ParameterState& parameters = parts_.training.parameters;
  const std::span<float> weights = parameters.weight_elements(model::Weights::current);
  const auto share = static_cast<float>(weight);
  for (std::size_t i = 0; i < weights.size(); ++i) differences_[i] = speaks_ ? share * (anchor_[i] - weights[i]) : 0;
  parts_.communicator.all_reduce(differences_);
  parts_.communicator.wait("agreeing on the weights", step);
  const std::size_t trained = parameters.table().trained_elements();
  const std::span<float> anchor(anchor_);
  model::outer_update(plan_.settings.agree.outer, anchor.first(trained), velocity_, differences_.first(trained));
  // Running means and variances have no momentum: beyond the mean of the islands' lies nothing.
  model::outer_update({.kind = model::OuterOptimizerKind::average}, anchor.subspan(trained), {},
                      differences_.subspan(trained));
  std::copy(anchor_.begin(), anchor_.end(), weights.begin());
  parameters.refresh_compute_copy(model::Weights::current);
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
  for (int island = 1; island < plan_.islands->count(); ++island) {
    for (const std::string& group : parts_.training.parameters.state_groups()) {
      if (group == "parameters") continue;
      const int root = plan_.islands->first_rank(island);
      groups.push_back({.name = fmt::format("{}_of_island_{}", group, island),
                        .save =
                            [this, group, root](std::span<float> out) {
                              if (!apart_ || parts_.communicator.rank() == root) {
                                parts_.training.parameters.download_group(group, differences_);
                              }
                              if (apart_) {
                                parts_.communicator.broadcast(std::as_writable_bytes(differences_), root);
                                parts_.communicator.wait("bringing together the islands' state");
                              }
                              if (!out.empty()) std::copy(differences_.begin(), differences_.end(), out.begin());
                            },
                        .restore =
                            [this, group, island](std::span<const float> in) {
                              if (apart_ && own_island_ == island) {
                                parts_.training.parameters.upload_group(group, in);
                              }
                            }});
    }
  }
  return groups;
}

}  // namespace lockstep::app
