#include "app/train/restore.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "comm/agreement.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace {

/// Restores or initialises the state of training. Returns the record that belongs to it.
io::TrainingRecord restore_state(comm::Communicator& communicator, const Plan& plan, Engine& engine, Origin& origin,
                                 bool new_optimizer) {
  model::ParameterState& parameters = engine.training().parameters;
  if (!origin.checkpoint) {
    parameters.initialize(plan.workload.seed);
    const StartOptions& options = plan.settings.start;
    if (options.from.empty()) return {};
    if (!origin.weights) origin.read_weights(communicator, options);  // return to the beginning
    origin.weights->initialize(parameters, options.reinitialize);
    origin.weights.reset();
    return {};
  }
  origin.checkpoint->restore_recurrent_state(engine.training().model.recurrent_state(),
                                             engine.sequences(plan.workload.work));
  if (new_optimizer) {
    parameters.reset_optimizer_state();
    origin.checkpoint->restore_without_optimizer(parameters);
  } else {
    origin.checkpoint->restore(parameters, engine.carried());
  }
  return *origin.record();
}

/// Rank 0: finds a roll-back after which the run was killed before its next checkpoint; only the metrics record it.
std::optional<RollBack> unrecorded_roll_back(const Plan& plan, io::IoDeadline* deadline, std::int64_t step) {
  const std::filesystem::path metrics = plan.settings.run.folder / "metrics.jsonl";
  const io::IoDeadline::Operation reading(deadline, io::IoDeadline::Kind::reading, metrics);
  return roll_back_after(io::read_whole(metrics).value_or(""), step);
}

/// Collective.
void begin_rounds(Console& console, const Plan& plan, Engine& engine, const Start& start) {
  if (LocalRounds* const rounds = engine.local_rounds()) rounds->begin();
  ServerRounds* const servers = engine.server_rounds();
  if (servers == nullptr) return;
  servers->begin({.steps = start.record.step,
                  .rate_factor = start.course.rate_factor,
                  .optimizer_since = start.course.optimizer_since});
  const std::int64_t end = servers->replay_ends(), total = plan.workload.work.total_steps;
  if (end < 0 || end >= total) return;
  console.warn(
      fmt::format("--replay {}: its record ends at step {}, and this run at step {}: in the steps after it "
                  "gradients count as they come",
                  plan.replay.string(), with_commas(end), with_commas(total)));
}

}  // namespace

Start restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, Origin& origin,
              const std::optional<Course>& before) {
  Start start;
  start.rolled_back = before.has_value();
  const RunOptions& run = plan.settings.run;
  const bool is_own = origin.checkpoint && is_of_run(origin.checkpoint->file(), run.folder);
  start.continues = is_own || start.rolled_back;
  const bool new_optimizer = origin.begins_optimizer(plan);
  engine.return_to(origin.checkpoint ? origin.record()->step : 0);
  start.record = restore_state(communicator, plan, engine, origin, new_optimizer);
  const std::int64_t step = start.record.step;
  Course& course = start.course = course_of(start.record.metrics);
  std::optional<RollBack> unrecorded;
  const bool goes_on = run.resume.from == Resume::From::newest && (is_own || origin.takes_folder_over);
  if (goes_on && !start.rolled_back && communicator.rank() == 0) {
    unrecorded = unrecorded_roll_back(plan, origin.deadline, step);
  }
  if (unrecorded) {
    course.roll_backs = unrecorded->course.roll_backs;
    course.rate_factor = unrecorded->course.rate_factor;
  }
  communicator.broadcast(std::as_writable_bytes(std::span(&course, 1)), 0);
  communicator.wait();
  if (before) {  // the checkpoint is older than the roll-back
    course.roll_backs = before->roll_backs;
    course.rate_factor = before->rate_factor;
  }
  if (new_optimizer) {
    course.optimizer_since = step;
    start.notes.push_back(new_optimizer_record(step, plan.record.optimizer));
  }
  begin_at(plan, standing_of(start.record, course.clock));
  if (plan.clock != course.clock) {
    start.notes.push_back(global_batch_record(plan.workload.work.global_batch, plan.clock));
  }
  if (unrecorded) start.notes.push_back(roll_back_record(step, unrecorded->failed_step, unrecorded->course));
  origin.checkpoint.reset();
  begin_rounds(console, plan, engine, start);
  if (course.rate_factor != 1) {
    console.info(fmt::format("learning rate: {:.4g} times what the options say, after {}", course.rate_factor,
                             counted(course.roll_backs, "roll-back")));
  }
  return start;
}

Course course_after(const Divergence& divergence, const Course& before, const RunOptions& options) {
  if (before.roll_backs >= options.roll_back) {
    throw comm::AgreedError(
        fmt::format("{}. The run went back {} before, at last with {:.4g} times the learning rate, and --roll-back {} "
                    "allows no more",
                    divergence.what(), counted(before.roll_backs, "time"), before.rate_factor, options.roll_back));
  }
  Course course = before;
  ++course.roll_backs;
  course.rate_factor *= options.roll_back_factor;
  return course;
}

}  // namespace lockstep::app
