#include "app/train/resume.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/data_contents.hpp"
#include "app/data/data_match.hpp"
#include "app/options/choices.hpp"
#include "app/options/stored_options.hpp"
#include "app/plan/common_result.hpp"
#include "app/plan/network_losses.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "io/files/durable_file.hpp"
#include "io/shards/data_description.hpp"
#include "io/text/shell_word.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

/// Returns the newest step of the checkpoint files in a run's folder; -1: none.
std::int64_t newest_step(const fs::path& run, io::IoDeadline* deadline) {
  const fs::path folder = run / "checkpoints";
  const io::IoDeadline::Operation listing(deadline, io::IoDeadline::Kind::reading, folder);
  const std::vector<io::FoundCheckpoint> found = io::list_checkpoints(folder);
  return found.empty() ? -1 : found.front().step;
}

/// Collective. Calls `look` on rank 0 and returns its result on all ranks. Throws comm::ConsensusError if it throws.
bool on_all_ranks(comm::Communicator& communicator, const std::function<bool()>& look) {
  std::uint8_t found = 0;
  comm::all_succeed(communicator, [&] { found = communicator.rank() == 0 && look(); });
  communicator.broadcast(std::as_writable_bytes(std::span(&found, 1)), 0);
  communicator.wait();
  return found != 0;
}

/// True if the tensors of one network fit the other. The signature covers properties of a sample besides its sizes.
bool same_network(const io::NetworkIdentity& a, const io::NetworkIdentity& b) {
  return a.signature == b.signature && a.features == b.features && a.outputs == b.outputs;
}

}  // namespace

void RestorePoint::open(comm::Communicator& communicator, const CheckpointChoice& choice) {
  checkpoint.emplace(communicator, choice, deadline);
  record = checkpoint->record();
  standing = standing_of(*record);
  communicator.broadcast(std::as_writable_bytes(std::span(&standing, 1)), 0);  // only rank 0 has the history
  communicator.wait();
}

void RestorePoint::open_weights(comm::Communicator& communicator, const CheckpointChoice& choice) {
  weight_file.emplace(communicator, choice, deadline, CheckpointOnRank0::Accept::weights);
  weights = weight_file->record();
}

RestorePoint find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                         const std::string& network, io::IoDeadline& deadline) {
  const Resume& resume = options.resume;
  RestorePoint origin;
  origin.folder = options.folder;
  origin.deadline = &deadline;
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
  origin.open(communicator, choice);
  for (const std::string& warning : origin.checkpoint->warnings())
    console.warn(fmt::format("{}; going on from the one before", warning));
  if (resume.from == Resume::From::file && !is_of_run(resume.file, origin.folder)) {
    console.info(fmt::format("a run from {} (step {}): its data, network and options, but for what is given here",
                             resume.file.string(), origin.record->step));
  }
  // If the run continues from a checkpoint older than its newest, a later --resume returns to the abandoned branch.
  const bool steps_back = origin.newest_seen > origin.record->step && origin.checkpoint->warnings().empty();
  if (console.speaks() && steps_back) {
    console.warn(fmt::format(
        "{} has checkpoints of later steps, up to {}: they stay, and --resume without a FILE takes the newest of all",
        origin.folder.string(), origin.newest_seen));
  }
  return origin;
}

namespace {

/// Collective. Returns true if the folder has a checkpoint newer than `origin.newest_seen`, and sets `origin` to it.
bool found_newer(comm::Communicator& communicator, Console& console, RestorePoint& origin) {
  const auto look = [&] { return newest_step(origin.folder, origin.deadline) > origin.newest_seen; };
  if (!on_all_ranks(communicator, look)) return false;
  origin.open(communicator, {.path = origin.folder, .which = CheckpointChoice::Which::latest});
  console.info(fmt::format("the owner before has written {} meanwhile", origin.checkpoint->file().string()));
  for (const std::string& warning : origin.checkpoint->warnings()) console.warn(warning);
  return true;
}

}  // namespace

std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, RestorePoint& origin,
                                         const Plan& plan) {
  std::optional<io::RunFolder> folder;
  if (plan.settings.run.resume.from != Resume::From::newest) return folder;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    folder.emplace(plan.settings.run.folder, io::RunFolder::Open::resume, false, origin.deadline);
  });
  if (found_newer(communicator, console, origin)) check_continues(communicator, console, *origin.record, plan);
  return folder;
}

void return_to_checkpoint(comm::Communicator& communicator, RestorePoint& origin, const Plan& plan,
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
  origin.record.reset();
  origin.standing = {};
  if (!file.empty()) origin.open(communicator, {.path = file});
}

std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit) {
  std::vector<io::FoundCheckpoint> own;  // newest first
  for (const io::FoundCheckpoint& found : io::list_checkpoints(folder)) {
    try {
      if (lies_behind(now, found.step, io::stored_record(found.file).metrics)) own.push_back(found);
    } catch (const io::FileError&) {  // damaged: an older one may be intact
    }
  }
  if (own.empty()) return {};
  const auto good = std::ranges::find_if(own, [&](const io::FoundCheckpoint& found) { return found.step <= limit; });
  const auto chosen = good == own.end() ? std::prev(own.end()) : good;
  for (auto later = own.begin(); later != chosen; ++later) {
    std::error_code error;
    std::filesystem::remove(later->file, error);
    if (error) throw io::FileError(fmt::format("cannot remove {}: {}", later->file.string(), error.message()));
  }
  return chosen->file;
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
  std::reverse(found.begin(), found.end());  // oldest first
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

namespace {

/// Throws UsageError if the outputs of the checkpoint have another meaning under the run's loss. `before`: --loss of
/// the checkpoint; nullopt: the default for its targets.
void require_same_meaning(const std::string& source, std::optional<model::LossKind> before, const Plan& plan) {
  const model::LossKind now = plan.workload.model.loss;
  if (!model::network_kind(plan.settings.network).losses.empty()) return;  // the network itself defines its losses
  const model::LossKind usual = plan.workload.training->info().labels_are_classes
                                    ? model::LossKind::softmax_cross_entropy
                                    : model::LossKind::mean_squared_error;
  if (meaning_of(before.value_or(usual)) == meaning_of(now)) return;
  throw UsageError(fmt::format(
      "{}: the checkpoint's outputs mean something else: it learnt by {}, and --loss {} has another metric. "
      "Leave --loss out, or start a new run from its weights with --initialize-from",
      source, word_of(std::optional(before.value_or(usual))), word_of(std::optional(now))));
}

/// Throws std::runtime_error unless the data are those of the checkpoint, in files of any name. Returns a note for
/// users if the names are others. `path`: --data of the checkpoint.
std::string require_same_data(const std::string& source, const io::TrainingRecord& record, const fs::path& path,
                              const Plan& plan) {
  const io::Dataset& data = *plan.workload.training;
  // Checkpoints of older versions have fingerprints without the contents of the data.
  if (record.dataset == plan.record.dataset || record.dataset == fingerprint_without_contents(data)) return "";
  io::DataDescription before;
  if (!record.data_description.empty()) before = io::data_description_from_json(record.data_description);
  const io::DataDescription now = io::data_description_from_json(plan.record.data_description);
  const std::string here = plan.workload.paths.training.string();
  if (is_same_data(before, now))
    return fmt::format("{} has the contents of {}, with which the run began", here, before.source);
  const bool is_there = path == fs::absolute(plan.settings.data.path).lexically_normal();
  const std::string changes = fmt::format("{}", fmt::join(changes_of(before, now), "; "));
  const std::string remedy = [&] {
    if (!is_there && before.contents.empty()) {
      return std::string("The checkpoint knows its files by their names, too: give them the names that they had");
    }
    if (!is_there) return fmt::format("Give --data {}", io::shell_path(path));
    if (record.program_version == plan.record.program_version)
      return std::string("Restore the files, their order and --validation");
    return fmt::format(
        "Restore the files and their order, or go on with lockstep {}, which wrote the checkpoint and may "
        "number files or classes otherwise",
        record.program_version);
  }();
  throw std::runtime_error(fmt::format(
      "{} is not the data that the checkpoint in {} was trained on, {} ({}): its place in the epoch means "
      "nothing there. {}, or start a new run (--initialize-from keeps the weights)",
      here, source, is_there ? "though it has the same path" : "which was " + path.string(), changes, remedy));
}

}  // namespace

void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan) {
  const io::TrainingRecord& wanted = plan.record;
  const RunOptions& run = plan.settings.run;
  const std::string source =
      (run.resume.from == Resume::From::file ? run.resume.file : run.folder / "checkpoints").string();
  std::string note, warning;
  all_succeed_or_usage(communicator, [&] {
    const io::NetworkIdentity &before_now = record.network, &now = wanted.network;
    if (before_now.features != now.features || before_now.outputs != now.outputs) {
      throw std::runtime_error(
          fmt::format("{}: the checkpoint's network has {} and {}, and for {} it would have {} and {}: give the same "
                      "--data, --x and --y, or start a new run",
                      source, counted(before_now.features, "input number"), counted(before_now.outputs, "output"),
                      plan.workload.paths.training.string(), counted(now.features, "input number"),
                      counted(now.outputs, "output")));
    }
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
    const InferenceOptions before = inference_options_of(record);
    note = require_same_data(source, record, before.data.path, plan);
    require_same_meaning(source, before.loss.kind, plan);
    warning = check_resumed_mode(source, train_options_of(record).agree, plan.settings.agree, record.step);
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
  if (!note.empty()) console.info(note);
  if (!warning.empty()) console.warn(warning);
  const std::vector<std::string> changed = changed_options({record.configuration, record.network_text}, plan.settings);
  console.info(
      fmt::format("continuing after step {} (epoch {}, sample {}){}", with_commas(record.step), record.epoch,
                  with_commas(record.position),
                  changed.empty() ? "" : fmt::format("; options that differ now: {}", fmt::join(changed, ", "))));
}

namespace {

/// Restores the state of training from the checkpoint, or initialises it.
void restore_state(comm::Communicator& communicator, const Plan& plan, Engine& engine, RestorePoint& origin,
                   bool new_optimizer) {
  model::ParameterState& parameters = engine.training().parameters;
  if (!origin.checkpoint) {
    parameters.initialize(plan.settings.work.seed);
    const StartOptions& options = plan.settings.start;
    if (options.from.empty()) return;
    if (!origin.weight_file) {  // a roll-back to the beginning
      origin.open_weights(communicator, {.path = options.from, .heads = given_heads(plan.settings)});
    }
    origin.weight_file->initialize(parameters, options.reinitialize);
    origin.weight_file.reset();
    return;
  }
  origin.checkpoint->restore_recurrent_state(engine.training().model.recurrent_state(),
                                             engine.sequences(plan.workload.work));
  if (new_optimizer) {
    parameters.reset_optimizer_state();
    origin.checkpoint->restore_without_optimizer(parameters);
  } else {
    origin.checkpoint->restore(parameters, engine.rounds().carried());
  }
  origin.checkpoint.reset();
}

/// For rank 0. Finds the roll-back to `step` after which the run was killed before its next checkpoint. Only
/// metrics.jsonl records it.
std::optional<RollBack> unrecorded_roll_back(const Plan& plan, io::IoDeadline* deadline, std::int64_t step) {
  const std::filesystem::path metrics = plan.settings.run.folder / "metrics.jsonl";
  const io::IoDeadline::Operation reading(deadline, io::IoDeadline::Kind::reading, metrics);
  return last_roll_back(io::read_whole(metrics).value_or(""), step);
}

}  // namespace

void restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, RestorePoint& origin,
             const std::optional<RollBack>& rolled_back) {
  const RunOptions& run = plan.settings.run;
  const bool is_own = origin.checkpoint && is_of_run(origin.checkpoint->file(), run.folder);
  const bool new_optimizer =
      run.new_optimizer_state && origin.checkpoint && origin.checkpoint->file() == run.resume.file;
  origin.rolled_back = rolled_back.has_value();
  origin.continues = is_own || origin.rolled_back;
  engine.return_to(origin.standing.step);
  restore_state(communicator, plan, engine, origin, new_optimizer);

  Standing& standing = origin.standing;
  std::optional<RollBack> roll_back = rolled_back;
  if (!rolled_back && run.resume.from == Resume::From::newest && (is_own || origin.takes_folder_over)) {
    if (communicator.rank() == 0) roll_back = unrecorded_roll_back(plan, origin.deadline, standing.step);
  }
  if (roll_back) {  // the checkpoint is older than the roll-back
    standing.roll_backs = roll_back->count;
    standing.rate_factor = roll_back->rate_factor;
  }
  UpdateClock before = standing.updates;
  const int per_step = plan.agreement->roles().updates_per_step;
  if (before.per_step == 0) {  // take the earlier launches for such as this one
    before.per_step = 1;
    standing.updates.per_step = per_step;
  }
  if (standing.updates.per_step != per_step || new_optimizer) {
    const std::int64_t updates = new_optimizer ? 0 : standing.updates.after(standing.step);
    standing.updates = {.step = standing.step, .updates = updates, .per_step = per_step};
  }
  communicator.broadcast(std::as_writable_bytes(std::span(&standing, 1)), 0);
  communicator.wait();
  begin_at(plan, origin);
  engine.rounds().begin(standing, [&](const std::string& text) { console.warn(text); });

  origin.events.clear();
  if (new_optimizer) origin.events.push_back(new_optimizer_record(standing.step, plan.record.optimizer));
  if (standing.updates != before) origin.events.push_back(updates_record(standing.updates));
  if (plan.clock != standing.clock) {
    origin.events.push_back(global_batch_record(plan.workload.work.global_batch, plan.clock));
  }
  if (roll_back) origin.events.push_back(roll_back_record(standing.step, *roll_back));
  if (standing.rate_factor != 1) {
    console.info(fmt::format("learning rate: {:.4g} times what the options say, after {}", standing.rate_factor,
                             counted(standing.roll_backs, "roll-back")));
  }
}

RollBack roll_back_after(const Divergence& divergence, const Standing& from, const RunOptions& options) {
  if (from.roll_backs >= options.roll_back) {
    throw comm::ConsensusError(
        fmt::format("{}. The run went back {} before, at last with {:.4g} times the learning rate, and --roll-back {} "
                    "allows no more",
                    divergence.what(), counted(from.roll_backs, "time"), from.rate_factor, options.roll_back));
  }
  return {.failed_step = divergence.step(),
          .count = from.roll_backs + 1,
          .rate_factor = from.rate_factor * options.roll_back_factor};
}

}  // namespace lockstep::app
