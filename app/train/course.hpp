/// \file
/// Events of a run besides its steps: roll-backs, a new state of the optimiser, another global batch. They are part of
/// the history in checkpoints, so that a resumed run knows them.
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

/// Detects divergence by the loss of each step although all numbers are finite: the mean loss of the last kWindow steps
/// is more than twice that of the best kWindow steps in a row so far, and the difference exceeds a tenth of the mean of
/// the first kWindow steps (which excludes the noise of a small loss).
class LossWatch {
 public:
  static constexpr std::int64_t kWindow = 20;
  /// Adds the loss of the next step.
  void saw(double loss);
  bool leaps() const noexcept;
  double mean() const noexcept { return mean_; }  ///< mean over the last window
  double best() const noexcept { return best_; }

 private:
  std::int64_t steps_ = 0;
  std::array<double, kWindow> losses_{};
  double mean_ = 0, best_ = 0, first_ = 0;
};

/// Events of a run according to its history.
struct Course {
  std::int64_t roll_backs = 0;
  double rate_factor = 1;            ///< factor of the learning rate after the roll-backs
  std::int64_t optimizer_since = 0;  ///< the step after which the optimiser's state began
  model::ScheduleClock clock = {};   ///< the schedule's count of steps
};
Course course_of(std::string_view history);

/// The record of the `course.roll_backs`-th roll-back, from `failed_step` to `step`. It belongs to the first step that
/// it affects, because checkpoints of `step` do not know it.
io::MetricRecord roll_back_record(std::int64_t step, std::int64_t failed_step, const Course& course);
/// The last roll-back to `step` in the lines of a metrics.jsonl, if there is one.
struct RollBack {
  std::int64_t failed_step = 0;
  Course course;
};
std::optional<RollBack> roll_back_after(std::string_view lines, std::int64_t step);
/// The record of an optimiser whose state begins after `step`.
io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer);

/// The record of another global batch, whose steps advance the schedule by another amount.
io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock);

/// Chooses among the checkpoints in `folder` that belong to the history of the run `now`. Removes those of steps after
/// `limit`, unless there are no others, and returns the newest that is left; empty: there is none. Damaged ones do not
/// count. Throws io::FileError if the folder cannot be listed or a file cannot be removed.
std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit);

}  // namespace lockstep::app
