#include "app/train/resume.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/agreement.hpp"
#include "app/plan/configuration.hpp"
#include "app/report/figures.hpp"
#include "comm/agreement.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

/// Newest step of the checkpoint files in a run's folder; -1: none.
std::int64_t newest_step(const fs::path& run, io::IoDeadline* deadline) {
  const fs::path folder = run / "checkpoints";
  const io::IoDeadline::Operation listing(deadline, io::IoDeadline::Kind::reading, folder);
  const std::vector<io::FoundCheckpoint> found = io::list_checkpoints(folder);
  return found.empty() ? -1 : found.front().step;
}

/// Collective: rank 0's result on all ranks; rank 0 may fail.
bool on_all_ranks(comm::Communicator& communicator, const std::function<bool()>& look) {
  std::uint8_t found = 0;
  comm::all_succeed(communicator, [&] { found = communicator.rank() == 0 && look(); });
  communicator.broadcast(std::as_writable_bytes(std::span(&found, 1)), 0);
  communicator.wait();
  return found != 0;
}

/// True if the tensors of one fit the other. (The signature covers properties of a sample besides its sizes.)
bool same_network(const io::NetworkIdentity& a, const io::NetworkIdentity& b) {
  return a.signature == b.signature && a.features == b.features && a.outputs == b.outputs;
}

}  // namespace

Origin find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                   const std::string& network, io::IoDeadline& deadline) {
  const Resume& resume = options.resume;
  Origin origin{
      .checkpoint = {}, .weights = {}, .folder = options.folder, .takes_folder_over = false, .deadline = &deadline};
  if (resume.from == Resume::From::nothing) {
    if (origin.folder.empty()) {
      origin.folder =
          fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", network, fmt::localtime(std::time(nullptr)));
    }
    origin.folder = broadcast_text(communicator, origin.folder.string());
    return origin;
  }
  if (resume.from == Resume::From::file && options.folder.empty()) {
    throw UsageError("--resume FILE needs --run: name the folder of the run that continues from it");
  }
  if (options.folder.empty()) throw UsageError("--resume needs --run: name the run folder to continue");
  const bool any = on_all_ranks(communicator, [&] {
    const bool of_folder = resume.from == Resume::From::newest || is_of_run(resume.file, origin.folder);
    return of_folder && (origin.newest_seen = newest_step(origin.folder, &deadline)) >= 0;
  });
  if (resume.from == Resume::From::newest && !any) {
    console.info(fmt::format("{} has no checkpoint yet: starting at step 0", origin.folder.string()));
    origin.takes_folder_over = true;
    return origin;
  }
  const CheckpointChoice choice{.path = resume.from == Resume::From::newest ? origin.folder : resume.file,
                                .which = CheckpointChoice::Which::latest};
  origin.checkpoint.emplace(communicator, choice, origin.deadline);
  for (const std::string& warning : origin.checkpoint->warnings())
    console.warn(fmt::format("{}; going on from the one before", warning));
  if (resume.from == Resume::From::file && !is_of_run(resume.file, origin.folder)) {
    console.info(fmt::format("a run from {} (step {}): its data, network and options, but for what is given here",
                             resume.file.string(), origin.record()->step));
  }
  // The run goes on from a checkpoint older than its newest: a later --resume would return to the abandoned branch.
  const bool steps_back = origin.newest_seen > origin.record()->step && origin.checkpoint->warnings().empty();
  if (console.speaks() && steps_back) {
    console.warn(fmt::format(
        "{} has checkpoints of later steps, up to {}: they stay, and --resume without a FILE takes the newest of all",
        origin.folder.string(), origin.newest_seen));
  }
  return origin;
}

namespace {

/// Collective. Returns true if there is a newer checkpoint than the one seen before; `origin` then holds it.
bool found_newer(comm::Communicator& communicator, Console& console, Origin& origin) {
  const auto look = [&] { return newest_step(origin.folder, origin.deadline) > origin.newest_seen; };
  if (!on_all_ranks(communicator, look)) return false;
  origin.checkpoint.emplace(
      communicator, CheckpointChoice{.path = origin.folder, .which = CheckpointChoice::Which::latest}, origin.deadline);
  console.info(fmt::format("the owner before has written {} meanwhile", origin.checkpoint->file().string()));
  for (const std::string& warning : origin.checkpoint->warnings()) console.warn(warning);
  return true;
}

}  // namespace

std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, Origin& origin,
                                         const Plan& plan) {
  std::optional<io::RunFolder> folder;
  if (plan.settings.run.resume.from != Resume::From::newest) return folder;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    folder.emplace(plan.settings.run.folder, io::RunFolder::Open::resume, false, origin.deadline);
  });
  if (found_newer(communicator, console, origin)) check_continues(communicator, console, *origin.record(), plan);
  return folder;
}

model::ScheduleClock clock_of(comm::Communicator& communicator, const Origin& origin) {
  model::ScheduleClock clock;
  if (!origin.checkpoint) return clock;
  clock = course_of(origin.record()->metrics).clock;
  communicator.broadcast(std::as_writable_bytes(std::span(&clock, 1)), 0);
  communicator.wait();
  return clock;
}

bool Origin::begins_optimizer(const Plan& plan) const {
  return plan.settings.run.new_optimizer_state && checkpoint && checkpoint->file() == plan.settings.run.resume.file;
}

void return_to_checkpoint(comm::Communicator& communicator, Origin& origin, const Plan& plan,
                          const io::TrainingRecord& now, std::int64_t limit) {
  const RunOptions& run = plan.settings.run;
  std::string file;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const fs::path folder = run.folder / "checkpoints";
    const io::IoDeadline::Operation looking(origin.deadline, io::IoDeadline::Kind::reading, folder);
    file = return_to_checkpoint(folder, now, limit).string();
  });
  file = broadcast_text(communicator, file);
  if (file.empty() && run.resume.from == Resume::From::file) file = run.resume.file;
  origin.checkpoint.reset();
  if (!file.empty()) origin.checkpoint.emplace(communicator, CheckpointChoice{.path = file}, origin.deadline);
}

bool lies_behind(const io::TrainingRecord& now, std::int64_t step, const std::string& its) {
  return step <= now.step && its == io::lines_up_to(now.metrics, step);
}

void record_unrecorded_checkpoints(io::MetricsLog& metrics, const fs::path& run, const io::TrainingRecord& now,
                                   io::IoDeadline& deadline) {
  using Operation = io::IoDeadline::Operation;
  const Operation looking(&deadline, io::IoDeadline::Kind::reading, run);
  const std::set<std::int64_t> recorded = io::recorded_steps(run / "metrics.jsonl", "checkpoint");
  std::vector<io::FoundCheckpoint> found = io::list_checkpoints(run / "checkpoints");
  std::reverse(found.begin(), found.end());  // newest first, so far
  for (const io::FoundCheckpoint& checkpoint : found) {
    if (checkpoint.step > now.step || recorded.contains(checkpoint.step)) continue;
    const Operation reading(&deadline, io::IoDeadline::Kind::reading, checkpoint.file);
    try {
      if (!lies_behind(now, checkpoint.step, io::stored_record(checkpoint.file).metrics)) continue;
    } catch (const io::FileError&) {  // damaged: it cannot be resumed, and its run is unknown
      continue;
    }
    metrics.write({{"kind", "checkpoint"},
                   {"step", checkpoint.step},
                   {"file", checkpoint.file.filename().string()},
                   {"seconds", std::numeric_limits<double>::quiet_NaN()}});
  }
}

bool is_of_run(const fs::path& file, const fs::path& run) {
  std::error_code unknown;  // the folder may not exist yet
  return fs::equivalent(fs::absolute(file).parent_path(), run / "checkpoints", unknown);
}

void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan) {
  const io::TrainingRecord& wanted = plan.record;
  const RunOptions& run = plan.settings.run;
  const std::string source =
      (run.resume.from == Resume::From::file ? run.resume.file : run.folder / "checkpoints").string();
  all_succeed_or_usage(communicator, [&] {
    if (!same_network(record.network, wanted.network)) {
      throw std::runtime_error(
          fmt::format("{}: the checkpoint is of another network ({}) than this one ({}): give the same --model "
                      "options, or start a new run",
                      source, io::to_text(record.network), io::to_text(wanted.network)));
    }
    const bool new_optimizer = run.new_optimizer_state;
    if (record.optimizer != wanted.optimizer && !new_optimizer) {
      throw std::runtime_error(fmt::format(
          "{}: the checkpoint was trained with --optimizer {}, not {}: give the same, or go on in a new run with "
          "--resume FILE --new-optimizer-state",
          source, record.optimizer, wanted.optimizer));
    }
    if (record.dataset != wanted.dataset) {
      throw std::runtime_error(
          fmt::format("{} is not the data that the checkpoint in {} was trained on: its place in the epoch means "
                      "nothing there. Give the same --data, or start a new run",
                      plan.workload.paths.training.string(), source));
    }
    const TrainOptions before = train_options_from_ini(record.configuration);
    const AgreeOptions &was = before.agree, &is = plan.settings.agree;
    if (was.local_steps > 0 && is.local_steps > 0 && was.islands != is.islands) {
      throw UsageError(fmt::format("{}: the checkpoint holds the optimisers of {} islands, not {}: give --islands {}",
                                   source, was.islands, is.islands, was.islands));
    }
    if (plan.workload.optimizer.average_decay > 0 && before.optimizer.average_decay == 0 && !new_optimizer) {
      throw UsageError(fmt::format(
          "{}: the checkpoint keeps no average of the weights: leave out --average-decay, or go on in a new "
          "run with --resume FILE --new-optimizer-state",
          source));
    }
    if (record.seed != wanted.seed) {
      throw std::runtime_error(fmt::format(
          "{}: the checkpoint was trained with --seed {}, not {}: the order of the samples would change. Give "
          "--seed {}, or start a new run",
          source, record.seed, wanted.seed, record.seed));
    }
  });
  const AgreeOptions was = train_options_from_ini(record.configuration).agree;
  if (was.islands > 1 && was.is_apart(record.step - 1) && !plan.settings.agree.is_apart(record.step)) {
    console.warn("the islands' optimisers become one, the first island's: the others' state is left behind");
  }
  const std::vector<std::string> changed = changed_options(record.configuration, plan.settings);
  console.info(
      fmt::format("continuing after step {} (epoch {}, sample {}){}", with_commas(record.step), record.epoch,
                  with_commas(record.position),
                  changed.empty() ? "" : fmt::format("; options that differ now: {}", fmt::join(changed, ", "))));
}

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
