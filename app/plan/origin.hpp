/// \file
/// The starting point of a run, and its events besides steps: roll-backs, a new state of the optimiser, another global
/// batch. The history in checkpoints includes these events, so that a resumed run knows them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "app/plan/work_plan.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/metrics_log.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Maps the steps of a run to updates by its optimiser's state: `updates` until step `step`, and then `per_step` by
/// each step. The corrections of Adam's bias and of averages need this count, which is not that of the steps if the
/// state is newer than the run, or if each worker's gradient makes an update of its own.
struct UpdateClock {
  std::int64_t step = 0, updates = 0, per_step = 1;
  std::int64_t after(std::int64_t steps) const noexcept { return updates + (steps - step) * per_step; }
  bool operator==(const UpdateClock&) const = default;
};

/// State of a run between two steps.
struct Standing {
  std::int64_t step = 0;
  DataCursor cursor = {};
  std::int64_t global_batch = 0;  ///< samples in the previous step; 0: no previous step, or not known yet
  // The events so far.
  std::int64_t roll_backs = 0;
  double rate_factor = 1;           ///< factor of the learning rate after the roll-backs
  UpdateClock updates = {};         ///< per_step 0: not known, as in checkpoints of earlier versions with --agree async
  model::ScheduleClock clock = {};  ///< the schedule's count of the previous steps
};
/// Returns the state after the steps of `record`, from its history.
Standing standing_of(const io::TrainingRecord& record);

/// Starting point of a run, which is found by reading its folder. The same on all ranks.
struct Origin {
  std::filesystem::path folder = {};               ///< the run's folder
  std::optional<io::TrainingRecord> record = {};   ///< checkpoint that the run resumes; its history is that of rank 0
  std::optional<io::TrainingRecord> weights = {};  ///< checkpoint that provides the initial weights, if it has a record
  Standing standing = {};                          ///< the state after the steps of `record`
  bool takes_folder_over = false;                  ///< the run uses the folder whatever it contains
  io::IoDeadline* deadline = nullptr;              ///< deadline of file operations; must outlive the plan
};

/// A return to an earlier checkpoint after a divergence.
struct RollBack {
  std::int64_t failed_step = 0, count = 0;
  double rate_factor = 1;  ///< factor of the learning rate from then on
};
/// Returns the record of a roll-back to `step`. The record belongs to the first step that the roll-back affects,
/// because checkpoints of `step` were written before it.
io::MetricRecord roll_back_record(std::int64_t step, const RollBack& roll_back);
/// Returns the last roll-back to `step` in the lines of a metrics.jsonl; nullopt if there is none.
std::optional<RollBack> last_roll_back(std::string_view lines, std::int64_t step);
/// Returns the record of an optimiser whose state begins after `step`.
io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer);

/// Returns the record of steps that from now on make another number of updates, or that begin with a new state.
io::MetricRecord updates_record(const UpdateClock& updates);

/// Returns the record of a change of the global batch, after which each step advances the schedule by another amount.
io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock);

}  // namespace lockstep::app
