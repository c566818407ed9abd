/// \file
/// The validations of a run: evaluates the network, and tracks the best metric, the target and the patience.
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

/// One step, or a round of several steps. `before` and `now` are the numbers of steps done before and after it.
struct StepsMade {
  std::int64_t before = 0, now = 0;
  /// True if an event with this interval is due after one of the steps.
  bool include(const Interval& every) const noexcept { return every.lies_between(before, now); }
};

/// The numbers under `key` of the validations in a history, by step, without those that do not count.
std::map<std::int64_t, double> counted_validations(std::string_view history, std::string_view key);

/// Evaluates the network on the validation data. Tracks the best metric so far, and whether training has reached its
/// target or its patience is over. The state is the same on all ranks.
class Validation {
 public:
  /// All references must outlive this object.
  Validation(const Plan& plan, comm::Communicator& communicator, Engine& engine);

  /// Collective. Restores the state from the validations in the history of `from`, the record from which the run
  /// continues. Only rank 0 needs the history. `made`: the last step or round before it.
  void go_on(const io::TrainingRecord& from, const StepsMade& made);
  bool is_due(const StepsMade& made) const noexcept { return made.include(workload_.work.evaluate_every); }
  /// True if a validation was due at the checkpoint from which the run continues, and has not been made.
  bool is_owed() const noexcept { return owed_; }

  struct Result {
    Score score;
    double seconds = 0;
  };
  /// A validation at a stop, which a run that goes on would not make, changes neither best metric nor patience, and
  /// reaches no target.
  enum class Counts : bool { no, yes };
  /// Collective. Evaluates the weights after `step`. Returns nullopt without validation data, or if `step` was the last
  /// one evaluated. Throws Divergence if the loss is not finite, and comm::ConsensusError if the metric is not defined.
  std::optional<Result> evaluate(std::int64_t step, Counts counts);

  double seconds() const noexcept { return seconds_; }  ///< total duration of all evaluations
  double best_metric() const noexcept { return best_metric_; }
  /// Step of the best validation that this object has made; -1: none.
  std::int64_t best_step() const noexcept { return best_step_; }
  /// Step of the last validation of the run; -1: none.
  std::int64_t last_step() const noexcept { return std::max(evaluated_step_, validated_before_); }
  bool target_is_reached() const noexcept { return target_reached_; }
  const Patience& patience() const noexcept { return patience_; }
  /// True if the target is reached or patience is over.
  bool ends_training() const noexcept { return target_reached_ || patience_.is_over(); }
  /// Returns the reason why validations end a resumed run at once; "" if they do not.
  std::string nothing_left() const;
  /// Returns the results for the last line of a run that ends after `step`.
  std::string results(std::int64_t step) const;
  /// Returns a warning if the network is no better than a predictor that ignores the sample; "" if it is better.
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
