/// \file
/// What happened to a run besides its steps: roll-backs, a new state of the optimiser, another global batch. They stand
/// in the history that checkpoints carry, so that a run that resumes knows of them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/checkpoints/checkpoint.hpp"
#include "io/runs/metrics_log.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Tells by the loss of each step whether training falls apart though all numbers are finite: the mean loss of the last
/// kWindow steps is more than twice that of the best kWindow steps in a row so far, and by more than a tenth of what
/// the first kWindow steps had (so that the noise of a small loss is none).
class LossWatch {
 public:
  static constexpr std::int64_t kWindow = 20;
  /// Of the next step.
  void saw(double loss);
  bool leaps() const noexcept;
  double mean() const noexcept { return mean_; }  ///< of the last window
  double best() const noexcept { return best_; }

 private:
  std::int64_t steps_ = 0;
  std::array<double, kWindow> losses_{};
  double mean_ = 0, best_ = 0, first_ = 0;
};

/// What the history of a run says of it.
struct Course {
  std::int64_t roll_backs = 0;
  double rate_factor = 1;            ///< of the learning rate, after them
  std::int64_t optimizer_since = 0;  ///< the step after which the optimiser's state began
  model::ScheduleClock clock = {};   ///< how the schedule counts the steps
};
Course course_of(std::string_view history);

/// The record of the `course.roll_backs`-th roll-back, which goes on after `step` because of what happened in
/// `failed_step`. It is of the first step that it concerns: checkpoints of `step` know nothing of it.
io::MetricRecord roll_back_record(std::int64_t step, std::int64_t failed_step, const Course& course);
/// The roll-back to `step` that `lines` of a metrics.jsonl tell of, if there is one.
struct RollBack {
  std::int64_t failed_step = 0;
  Course course;
};
std::optional<RollBack> roll_back_after(std::string_view lines, std::int64_t step);
/// Likewise of an optimiser whose state begins after `step`.
io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer);

/// Likewise of another global batch, whose steps take the schedule otherwise as far as those before did.
io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock);

/// Of the checkpoints in `folder` that the run which has come to `now` went through: removes those of steps after
/// `limit`, unless there are no others, and returns the newest that is left; empty: there is none. Damaged ones do not
/// count. Throws io::FileError where the folder cannot be listed or a file not be removed.
std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit);

}  // namespace lockstep::app
