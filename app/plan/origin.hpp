/// \file The starting point of a run, and the events of a run besides its steps (roll-backs, a new state of the
/// optimiser, another global batch). They are part of the history in checkpoints, so that a resumed run knows them.
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

/// State of a run at the beginning of some steps.
struct Standing {
  std::int64_t step = 0;
  DataCursor cursor = {};
  std::int64_t global_batch = 0;  ///< samples of the previous step; 0: there was none, or it is not known yet
  // The events so far.
  std::int64_t roll_backs = 0;
  double rate_factor = 1;            ///< factor of the learning rate after the roll-backs
  std::int64_t optimizer_since = 0;  ///< the step after which the optimiser's state began
  model::ScheduleClock clock = {};   ///< the schedule's count of the previous steps
};
/// The state after the steps of this record, by its history.
Standing standing_of(const io::TrainingRecord& record);

/// Starting point of a run, known once its folder has been read; the same on all ranks.
struct Origin {
  std::filesystem::path folder = {};               ///< the run's folder
  std::optional<io::TrainingRecord> record = {};   ///< checkpoint that the run goes on from; its history: rank 0's
  std::optional<io::TrainingRecord> weights = {};  ///< checkpoint that provides the initial weights, if it has a record
  Standing standing = {};                          ///< the state after the steps of `record`
  bool takes_folder_over = false;                  ///< the run uses the folder whatever it contains
  io::IoDeadline* deadline = nullptr;              ///< deadline of operations on files; outlives the plan
};

/// A return to an earlier checkpoint after a divergence.
struct RollBack {
  std::int64_t failed_step = 0, count = 0;
  double rate_factor = 1;  ///< factor of the learning rate from then on
};
/// The record of a roll-back to `step`. It belongs to the first step that it affects, because checkpoints of `step` do
/// not know it.
io::MetricRecord roll_back_record(std::int64_t step, const RollBack& roll_back);
/// The last roll-back to `step` in the lines of a metrics.jsonl, if there is one.
std::optional<RollBack> last_roll_back(std::string_view lines, std::int64_t step);
/// The record of an optimiser whose state begins after `step`.
io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer);

/// The record of another global batch, whose steps advance the schedule by another amount.
io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock);

}  // namespace lockstep::app
