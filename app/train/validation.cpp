#include "app/train/validation.hpp"

#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "app/engine/divergence.hpp"
#include "app/engine/evaluation.hpp"
#include "app/options/choices.hpp"
#include "app/options/stored_options.hpp"
#include "app/plan/constant_predictor.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/report.hpp"
#include "comm/consensus.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

/// True if the run has compared its validations by this metric so far.
bool compares_by(const io::TrainingRecord& record, BestBy metric) {
  try {
    return train_options_of(record).validation.best_by == metric;
  } catch (const UsageError&) {  // a version that had no other metrics wrote the record
    return metric == BestBy::usual;
  }
}

}  // namespace

std::map<std::int64_t, double> counted_validations(std::string_view history, std::string_view key) {
  std::map<std::int64_t, double> numbers = io::numbers_by_step(history, "validation", key);
  for (const auto& [step, mark] : io::numbers_by_step(history, "validation", Reporter::kNotCounted))
    numbers.erase(step);
  return numbers;
}

Validation::Validation(const Plan& plan, comm::Communicator& communicator, Engine& engine)
    : options_(plan.settings.validation),
      workload_(plan.workload),
      communicator_(communicator),
      engine_(engine),
      patience_(options_.patience, options_.min_delta,
                [task = *workload_.task](double a, double b) { return task.is_better(a, b); }) {}

/// If --best-by has changed, the best metric is computed anew from the history.
void Validation::go_on(const io::TrainingRecord& from, const StepsMade& made) {
  validated_before_ = from.validated_step;
  owed_ = from.step > 0 && is_due(made) && validated_before_ < from.step;
  const auto losses = counted_validations(from.metrics, "loss");
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double best = kNone, best_loss = kNone;
  for (const auto& [step, metric] : counted_validations(from.metrics, workload_.task->best_key())) {
    patience_.saw(metric);
    const auto found = losses.find(step);
    const double loss = found != losses.end() ? found->second : kNone;
    if (std::isnan(best) || better(metric, best)) {
      best = metric;
      best_loss = loss;
    } else if (metric == best && !(best_loss <= loss)) {
      best_loss = loss;
    }
  }
  if (communicator_.rank() == 0 && from.step > 0 && compares_by(from, options_.best_by)) {
    if (best != from.best_metric) best_loss = kNone;
    best = from.best_metric;
  }
  std::array<double, 4> counted{patience_.best(), static_cast<double>(patience_.in_vain()), best, best_loss};
  communicator_.broadcast(std::as_writable_bytes(std::span(counted)), 0);
  communicator_.wait();
  patience_.go_on(counted[0], static_cast<std::int64_t>(counted[1]));
  best_metric_ = counted[2];
  best_loss_ = counted[3];
  target_reached_ = reaches_target(best_metric_);
}

bool Validation::reaches_target(double metric) const {
  return options_.target_metric && !std::isnan(metric) && !better(*options_.target_metric, metric);
}

std::optional<Validation::Result> Validation::evaluate(std::int64_t step, Counts counts) {
  if (!workload_.validation || evaluated_step_ == step) return std::nullopt;
  communicator_.note_activity("validation", step);
  const StopWatch watch;
  const model::Weights weights = options_.average ? model::Weights::average : model::Weights::current;
  model::Training& training = engine_.training();
  if (options_.average) engine_.bring_together(training.parameters.weight_elements(weights));
  Result result;
  engine_.rounds().together([&] {
    result.score =
        app::evaluate(training.model, *workload_.validation, communicator_, weights, options_.batch, *workload_.task);
  });
  evaluated_step_ = step;
  result.seconds = watch.seconds();
  seconds_ += result.seconds;
  const Score& score = result.score;  // the same on all ranks
  if (!std::isfinite(score.loss)) {
    throw Divergence(
        step, step - 1,
        fmt::format("step {}: the validation loss is not finite: the weights have grown too large, or {} holds numbers "
                    "that are not finite. No checkpoint was written of them; the one before is intact. A smaller "
                    "--learning-rate, --warmup-steps or --clip-norm usually helps",
                    step, workload_.paths.validation.string()));
  }
  if (std::isnan(score.best)) {
    throw comm::ConsensusError(fmt::format(
        "--best-by {}: {} is not defined where all samples are of one class, as in {}: give another metric or other "
        "validation data",
        word_of(options_.best_by), workload_.task->metric_words(), workload_.paths.validation.string()));
  }
  last_ = score;
  if (counts == Counts::no) return result;
  const bool is_first = std::isnan(best_metric_);
  const bool is_equal = !is_first && !better(best_metric_, score.best);
  if (is_first || better(score.best, best_metric_) || (is_equal && score.loss < best_loss_)) {
    best_metric_ = score.best;
    best_loss_ = score.loss;
    best_step_ = step;
  }
  target_reached_ = reaches_target(score.best);
  patience_.saw(score.best);
  return result;
}

std::string Validation::nothing_left() const {
  if (target_reached_) {
    return fmt::format(
        "the target metric {:.6g} is reached (best so far: {:.6g}): nothing is left to do (another --target-metric "
        "goes on "
        "from here)",
        *options_.target_metric, best_metric_);
  }
  if (patience_.is_over()) {
    return fmt::format(
        "the last {} were not better than {:.6g}: nothing is left to do (more --patience goes on from here)",
        counted(patience_.in_vain(), "validation"), patience_.best());
  }
  return "";
}

std::string Validation::results(std::int64_t step) const {
  if (!last_) return "";
  std::string text =
      fmt::format("; validation{} {}", evaluated_step_ == step ? "" : fmt::format(" at step {}", evaluated_step_),
                  workload_.task->format_evaluation(*last_));
  if (better(best_metric_, last_->best)) text += fmt::format(", best metric {:.6g}", best_metric_);
  return text;
}

std::string Validation::beaten_by_constant() const {
  const std::optional<Score>& reached = workload_.constant_score;
  if (!reached || !last_) return "";
  const ConstantPredictor& constant = workload_.constant;
  const Task& task = *workload_.task;
  const std::string text = beaten_by(constant, compared(*last_, task), *reached, task);
  if (text.empty()) return "";
  const bool comparable = std::string_view(task.best_key()) == (task.has_masks() ? "mean_iou" : task.metric_key());
  if (comparable && !std::isnan(best_metric_) && beaten_by(constant, best_metric_, *reached, task).empty()) {
    return fmt::format("validation {}; the best validation{} was better ({})", text,
                       best_step_ < 0 ? "" : fmt::format(", at step {},", best_step_),
                       task.format_metric(best_metric_));
  }
  return fmt::format(
      "validation {}: the network has learnt nothing that helps there. Look at --learning-rate, "
      "--normalize, the amount of training and the labels",
      text);
}

}  // namespace lockstep::app
