/// \file
/// The validations of a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "app/engine/engine.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/task.hpp"
#include "app/train/patience.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::app {

/// One step, or a round of several: from `before` steps done to `now`.
struct StepsMade {
  std::int64_t before = 0, now = 0;
  /// True if the event is due in one of them.
  bool include(const Interval& every) const noexcept { return every.lies_between(before, now); }
};

/// Evaluates the network on the validation data, and knows the best metric so far, and whether training has reached its
/// target or its patience is over. All ranks know the same.
class Validation {
 public:
  /// All must outlive this.
  Validation(const Plan& plan, comm::Communicator& communicator, Engine& engine);

  /// Collective. Counts the validations before `from`, the record that the run goes on from (its history is rank 0's).
  /// `made`: the last steps before it.
  void go_on(const io::TrainingRecord& from, const StepsMade& made);
  bool is_due(const StepsMade& made) const noexcept { return made.include(workload_.work.evaluate_every); }
  /// True if the checkpoint that the run goes on from was written where a validation was due, and before it.
  bool is_owed() const noexcept { return owed_; }

  struct Result {
    Score score;
    double seconds = 0;
  };
  /// Collective. Evaluates the weights after `step`; nullopt: there are no validation data, or it has done so before.
  /// Throws Divergence, comm::ConsensusError.
  std::optional<Result> evaluate(std::int64_t step);

  double seconds() const noexcept { return seconds_; }  ///< duration of all evaluations
  double best_metric() const noexcept { return best_metric_; }
  std::int64_t best_step() const noexcept {
    return best_step_;
  }  ///< step of the best one that this object has made; -1: none
  std::int64_t last_step() const noexcept { return std::max(evaluated_step_, validated_before_); }  ///< -1: none
  bool target_is_reached() const noexcept { return target_reached_; }
  const Patience& patience() const noexcept { return patience_; }
  /// True if the target is reached or patience is over.
  bool ends_training() const noexcept { return target_reached_ || patience_.is_over(); }
  /// The reason why a resumed run has no step to make; "": validations do not end it.
  std::string nothing_left() const;
  /// The results for the last line of a run that ends after `step`.
  std::string results(std::int64_t step) const;
  /// A warning if the network is no better than a predictor that ignores the sample; "": it is better.
  std::string beaten_by_constant() const;

 private:
  bool better(double a, double b) const { return workload_.task->is_better(a, b); }
  bool reaches_target(double metric) const;

  const ValidationOptions& options_;
  const Workload& workload_;
  comm::Communicator& communicator_;
  Engine& engine_;
  Patience patience_;
  std::optional<Score> last_;
  double best_metric_ = std::numeric_limits<double>::quiet_NaN();
  double best_loss_ = std::numeric_limits<double>::quiet_NaN();  ///< lowest loss with that metric
  double seconds_ = 0;
  std::int64_t evaluated_step_ = -1, best_step_ = -1;
  std::int64_t validated_before_ = -1;  ///< last step validated by the run that this one resumes
  bool target_reached_ = false, owed_ = false;
};

}  // namespace lockstep::app
