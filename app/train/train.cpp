#include "app/train/train.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/data/verify_data.hpp"
#include "app/engine/divergence.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/micro_batches.hpp"
#include "app/engine/trainer.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/fingerprint.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/figures.hpp"
#include "app/report/result_file.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/announcement.hpp"
#include "app/train/checkpoint_schedule.hpp"
#include "app/train/loss_watch.hpp"
#include "app/train/pending_error.hpp"
#include "app/train/resume.hpp"
#include "app/train/run_log.hpp"
#include "app/train/train_command_line.hpp"
#include "app/train/validation.hpp"
#include "app/train/wall_time.hpp"
#include "comm/consensus.hpp"
#include "io/datasets/prefetcher.hpp"
#include "io/runs/run_folder.hpp"
#include "io/text/shell_word.hpp"

namespace lockstep::app {

namespace {

/// The parts of a training job that exist during all of its steps.
struct Job {
  comm::Communicator& communicator;
  Console& console;
  Plan& plan;
  Engine& engine;
  StopSignals& signals;
  io::IoDeadline& deadline;
  WallTime time_left;            ///< the one of rank 0 decides for all ranks
  std::string faster_precision;  ///< the plan's advice about one; empty: none
};

/// Trains from a starting point to the end of the run or to a divergence: steps, validations, checkpoints and reports.
class TrainingLoop {
 public:
  /// Collective. Allocates the copies that checkpoints are written from. Throws comm::ConsensusError.
  TrainingLoop(const Job& job, const RestorePoint& start);

  /// Collective. Opens the run's folder. `taken`: the folder, if rank 0 owns it already. Throws comm::ConsensusError.
  void open_folder(std::optional<io::RunFolder> taken);
  /// Collective. Returns the exit code. Throws Divergence.
  int run();
  /// Collective. Call after a Divergence. Waits for the checkpoint under way. Returns the folder on rank 0, for the
  /// next loop. Throws comm::ConsensusError if any rank has a pending error.
  std::optional<io::RunFolder> leave();
  /// Returns the record of the run so far. It is complete on rank 0; other ranks have only the step.
  io::TrainingRecord record() const;

 private:
  void make_steps();
  Trainer::Result advance();
  Trainer::Request next_request();
  std::int64_t next_common_step() const;
  void report(StepFigures figures);
  void watch_loss(const StepFigures& figures);
  void validate();

  StepsMade made() const { return {.before = before_, .now = trainer_.steps_done()}; }
  bool epoch_is_over() const { return trainer_.next_position() >= work_.epoch_samples; }
  double epochs_done() const {
    return static_cast<double>(trainer_.epoch()) +
           static_cast<double>(trainer_.next_position()) / static_cast<double>(work_.epoch_samples);
  }
  TimeSplit time_in_steps() const {
    TimeSplit split = trainer_.time();
    split.total = running_.seconds() - validation_.seconds() - checkpoints_.seconds();
    return split;
  }
  bool is_last_step() const { return trainer_.steps_done() >= work_.total_steps; }
  std::int64_t stop_step() const;
  bool stops_here() const { return trainer_.steps_done() >= stop_step() && !is_last_step(); }
  std::string nothing_left() const;
  const char* how_it_ended() const;
  std::string last_line() const;

  const Job& job_;
  const RestorePoint& start_;
  const WorkPlan& work_;
  io::Prefetcher samples_;
  BatchFeed batches_;
  model::LearningRateSchedule schedule_;
  Trainer trainer_;
  PendingError error_;
  WallTime time_left_;
  RunLog log_;
  Validation validation_;
  CheckpointSchedule checkpoints_;
  LossWatch loss_watch_;
  std::int64_t before_;  ///< steps done when the last step, or round, began
  bool stopped_ = false;
  StopWatch running_;  ///< time since run() was called
};

/// The training loop: step, report, validate, save.
void TrainingLoop::make_steps() {
  while (!is_last_step() && !validation_.ends_training() && !stopped_ && !stops_here()) {
    StopWatch watch;
    const Trainer::Result step = advance();  // next batch, forward, backward, update
    report(step.figures);
    watch_loss(step.figures);
    checkpoints_.poll();
    stopped_ = step.stop_requests > 0 && !is_last_step();  // nothing is left to stop after the last step
    time_left_.took_step(job_.engine.rounds().seconds_to_stop(watch.seconds(), made().now - made().before));
    if (epoch_is_over()) error_.keep([this] { checkpoints_.check_own_shards(trainer_.steps_done()); });
    // A stop must be quick: it saves a checkpoint, and the resumed run makes the validation.
    if (validation_.is_due(made()) && !stopped_) validate();
    const bool save = checkpoints_.is_due(made(), step, validation_);
    if (save && !is_last_step()) checkpoints_.save(record());  // the last checkpoint follows the last validation
    if (step.save_requests > 0) checkpoints_.answered();
  }
  log_.remaining_steps(time_in_steps());
}

/// Collective. Makes a step, or a round of several steps: next batch, forward, backward (which reduces gradients as
/// soon as they are computed) and update. Trainer::step has the details.
Trainer::Result TrainingLoop::advance() {
  before_ = trainer_.steps_done();
  return job_.engine.rounds().advance(trainer_, next_common_step(),
                                      {.ask = [this] { return next_request(); },
                                       .report =
                                           [this](StepFigures figures) {
                                             figures.epoch = work_.epochs_after(figures.step);
                                             log_.steps(figures, time_in_steps());
                                             checkpoints_.poll();  // does not communicate: only one rank writes
                                           },
                                       .record = [this](const std::string& file, const std::string& bytes,
                                                        bool anew) { log_.append(file, bytes, anew); },
                                       .go_on_at = [this](DataCursor cursor) { batches_.go_on_at(cursor); }});
}

/// Returns this rank's request for the next step.
Trainer::Request TrainingLoop::next_request() {
  const StepsMade next{.before = before_, .now = std::max(trainer_.steps_done(), before_ + 1)};
  const bool time_is_up = time_left_.is_up(
      {.validation = validation_.is_due(next), .checkpoint = checkpoints_.is_ahead(next, validation_)});
  Trainer::Request request{.stop = time_is_up || job_.signals.stop_requested(), .error = error_.text()};
  checkpoints_.ask(request, job_.signals.take_checkpoint_requests());
  return request;
}

/// Returns the next step after which all ranks act together: a validation, a checkpoint, histograms or the end.
std::int64_t TrainingLoop::next_common_step() const {
  std::int64_t next = stop_step();
  const Interval histograms{.steps = job_.plan.settings.reports.histograms_every};
  for (const Interval& every : {work_.evaluate_every, work_.checkpoint_every, histograms}) {
    if (every.steps > 0) next = std::min(next, every.next(trainer_.steps_done()));
  }
  return next;
}

/// Collective if histograms are due.
void TrainingLoop::report(StepFigures figures) {
  figures.epoch = epochs_done();
  log_.steps(figures, time_in_steps());
  if (made().include({.steps = job_.plan.settings.reports.histograms_every})) log_.histograms(trainer_.steps_done());
  log_.backend_notes();
}

/// Collective. Throws Divergence if the loss leaps and --roll-back is set.
void TrainingLoop::watch_loss(const StepFigures& figures) {
  if (job_.plan.settings.run.roll_back == 0 || figures.samples <= 0) return;
  loss_watch_.saw(figures.loss_sum / figures.samples);
  if (!loss_watch_.leaps()) return;
  throw Divergence(figures.step, figures.step - LossWatch::kWindow * (made().now - made().before),
                   fmt::format("step {}: the loss leaps: {:.5g} on average over the last {} {}, and {:.5g} at its best",
                               figures.step, loss_watch_.mean(), LossWatch::kWindow, job_.engine.rounds().unit(),
                               loss_watch_.best()));
}

/// Collective.
void TrainingLoop::validate() {
  const std::int64_t step = trainer_.steps_done();
  // The run makes no validation here unless it stops. To continue as if it had not stopped, it does not count this one.
  const bool counts = !stops_here() || validation_.is_due(made());
  const std::optional<Validation::Result> result =
      validation_.evaluate(step, counts ? Validation::Counts::yes : Validation::Counts::no);
  if (!result) return;
  time_left_.took_validation(result->seconds);
  if (counts) checkpoints_.validated(step, result->score);
  log_.validation(step, epochs_done(), result->score,
                  {.seconds = result->seconds, .training = time_in_steps().total, .counts = counts});
}

int TrainingLoop::run() {
  running_.lap();
  if (validation_.is_owed()) {
    validate();
    // This step's checkpoint lacks the validation's result: a run resumed from it would validate again.
    checkpoints_.save_again(record());
  }
  const std::string idle = nothing_left();
  if (idle.empty()) {
    if (!start_.rolled_back) log_.start(epochs_done());
    make_steps();
    const TimeSplit time = time_in_steps();
    stopped_ = stopped_ && !validation_.ends_training();
    if (!stopped_) validate();
    stopped_ = stopped_ || (stops_here() && !validation_.ends_training());
    const std::int64_t steps = trainer_.steps_done() - start_.standing.step;
    const bool comparable = job_.plan.agreement->roles().updates_here;  // servers do work that one rank would not have
    log_.results(validation_.beaten_by_constant(), time,
                 {comparable ? advise_one_rank(time, job_.communicator.size(), steps) : "",
                  advise_precision(time, job_.faster_precision)});
    if (const std::string report = job_.engine.rounds().report(); !report.empty()) job_.console.info(report);
  }
  checkpoints_.save(record());
  checkpoints_.wait();
  job_.signals.ignore();  // nothing is left to stop: the exit code reports the result
  if (idle.empty()) log_.end(trainer_.steps_done(), how_it_ended());
  job_.engine.rounds().together([this] { error_.raise(); });
  job_.console.info(idle.empty() || stopped_ ? last_line() : idle);
  return stopped_ ? kExitStoppedEarly : kExitDone;
}

std::optional<io::RunFolder> TrainingLoop::leave() {
  checkpoints_.wait();
  error_.raise();
  return log_.folder() ? std::optional(std::move(*log_.folder())) : std::nullopt;
}

io::TrainingRecord TrainingLoop::record() const {
  io::TrainingRecord record;
  if (job_.communicator.rank() == 0) {
    record = job_.plan.record;
    record.epoch = trainer_.epoch() + (epoch_is_over() ? 1 : 0);
    record.position = epoch_is_over() ? 0 : trainer_.next_position();
    record.best_metric = validation_.best_metric();
    record.validated_step = validation_.last_step();
    record.metrics = log_.history();
  }
  record.step = trainer_.steps_done();
  return record;
}

/// Returns the last step of this launch (--stop-at).
std::int64_t TrainingLoop::stop_step() const {
  const double stop_at = job_.plan.settings.run.stop_at;
  const auto total = static_cast<double>(work_.total_steps);
  const double step = stop_at < 1 ? std::ceil(stop_at * total) : stop_at;
  return stop_at > 0 && step < total ? static_cast<std::int64_t>(step) : work_.total_steps;
}

/// Returns the reason why a resumed run has no steps left; "" if it has some.
std::string TrainingLoop::nothing_left() const {
  if (!is_last_step()) return validation_.nothing_left();
  return fmt::format(
      "step {} is done and this run ends at step {}: nothing is left to do (more --epochs or --steps go on from "
      "here)",
      with_commas(trainer_.steps_done()), with_commas(work_.total_steps));
}

const char* TrainingLoop::how_it_ended() const {
  return stopped_                                              ? "stopped"
         : validation_.target_is_reached()                     ? "target reached"
         : validation_.patience().is_over() && !is_last_step() ? "no improvement"
                                                               : "done";
}

std::string TrainingLoop::last_line() const {
  const double seconds = running_.seconds();
  const std::string taken = seconds < 60 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
  const std::int64_t step = trainer_.steps_done();
  const std::string results = validation_.results(step) + checkpoints_.results();
  if (!stopped_) {
    const Patience& patience = validation_.patience();
    const std::string in_vain = patience.is_over() && !validation_.target_is_reached() && !is_last_step()
                                    ? fmt::format(" in {} validations", patience.in_vain())
                                    : "";
    return fmt::format("{}{} at step {} after {}{}", how_it_ended(), in_vain, step, taken, results);
  }
  const std::string why = !time_left_.reason().empty()    ? fmt::format(": {};", time_left_.reason())
                          : job_.signals.stop_requested() ? fmt::format(" on request ({})", job_.signals.name())
                          : stops_here()                  ? std::string(" (--stop-at)")
                                                          : " on request";
  return fmt::format("stopped at step {}{} after {}{}; continue with --resume --run {} (exit code {})", step, why,
                     taken, results, io::shell_path(job_.plan.settings.run.folder), kExitStoppedEarly);
}

io::PrefetcherOptions samples_from(DataCursor cursor, const Job& job) {
  io::PrefetcherOptions options = reading(job.plan.workload, job.engine.reads_as(), job.engine.training_ranks());
  options.first_epoch = cursor.epoch;
  options.first_position = cursor.position;
  options.memory = job.engine.backend().host_memory();
  return options;
}

TrainingLoop::TrainingLoop(const Job& job, const RestorePoint& start)
    : job_(job),
      start_(start),
      work_(job.plan.workload.work),
      samples_(*job.plan.workload.training, samples_from(start.standing.cursor, job)),
      batches_(make_feed(job.plan, job.engine.backend(), samples_, job.engine.stepping(),
                         share_of(work_, job.engine.reads_as(), job.engine.training_ranks()).micro_steps)),
      schedule_(job.plan.schedule.scaled(start.standing.rate_factor)),
      trainer_(job.engine.trainer_context(), schedule_,
               share_of(work_, job.engine.reads_as(), job.engine.training_ranks()).micro_steps, batches_of(batches_)),
      error_(job.communicator),
      time_left_(job.time_left),
      log_(job.plan, job.communicator, job.console, job.engine, error_, start.standing.step),
      validation_(job.plan, job.communicator, job.engine),
      checkpoints_(job.plan, job.communicator, job.engine, error_,
                   [this](const WrittenCheckpoint& written) {
                     log_.checkpoint(written);
                     time_left_.took_checkpoint(written.seconds);
                   }),
      before_(job.plan.settings.agree.round_begin(std::max<std::int64_t>(0, start.standing.step - 1))) {
  const Standing& standing = start.standing;
  trainer_.start_at(standing.step, standing.cursor.epoch, standing.cursor.position);
  trainer_.set_updates(standing.updates.after(standing.step));
}

void TrainingLoop::open_folder(std::optional<io::RunFolder> taken) {
  const io::TrainingRecord from = start_.record.value_or(io::TrainingRecord{});
  validation_.go_on(from, made());
  comm::all_succeed(job_.communicator, [&] {
    if (job_.communicator.rank() == 0) log_.open(std::move(taken), start_.continues, from, job_.deadline);
    checkpoints_.open(log_.folder(), start_.continues, from, job_.deadline);
  });
  for (const io::MetricRecord& event : start_.events) log_.add_event(event);
}

/// Collective. Trains to the end of the run, and returns to a checkpoint after each divergence (--roll-back).
int train_to_the_end(const Job& job, RestorePoint& origin, std::optional<io::RunFolder> folder,
                     std::optional<TrainingLoop>& loop) {
  const RunOptions& run = job.plan.settings.run;
  for (;;) {
    loop->open_folder(std::move(folder));
    try {
      return loop->run();
    } catch (const Divergence& divergence) {
      if (run.roll_back == 0) throw;
      const RollBack roll_back = roll_back_after(divergence, origin.standing, run);
      folder = loop->leave();
      return_to_checkpoint(job.communicator, origin, job.plan, loop->record(), divergence.good_step());
      loop.reset();
      job.console.warn(fmt::format("{}. Going back to {} with {:.4g} times the learning rate (roll-back {} of {})",
                                   divergence.what(),
                                   origin.checkpoint ? origin.checkpoint->file().string() : "the beginning",
                                   roll_back.rate_factor, roll_back.count, run.roll_back));
      restore(job.communicator, job.console, job.plan, job.engine, origin, roll_back);
      loop.emplace(job, origin);
    }
  }
}

}  // namespace

TrainOptions read_train_command(const std::vector<std::string>& arguments) {
  return parse_train(arguments, [](const std::filesystem::path& checkpoint) {
    try {
      io::TrainingRecord record = io::stored_record(checkpoint);
      return StoredRun{.configuration = std::move(record.configuration), .network = std::move(record.network_text)};
    } catch (const io::FileError& error) {
      throw UsageError(fmt::format("--resume: {}", error.what()));
    }
  });
}

int run_train(comm::MpiSession& session, const TrainOptions& given, StopSignals& signals) {
  Console console(session.rank() == 0);
  const std::unique_ptr<comm::Communicator> communicator = connect_ranks(session, given.agree, given.execution);
  io::IoDeadline io_deadline = watch_files(session, *communicator, given.execution.io_deadline);
  const Console::Watch watched(console, io_deadline);
  if (!communicator->transport_note().empty()) console.warn(communicator->transport_note());
  console.set_progress(given.reports.progress);
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  const StopWatch launched;
  const JobTime job_time = communicator->rank() == 0 ? find_job_time(given.run.time_limit) : JobTime{};

  RestorePoint origin =
      find_origin(*communicator, console, given.run, model::network_kind(given.network).name, io_deadline);
  if (!origin.checkpoint && !given.start.from.empty()) {
    origin.open_weights(*communicator, {.path = given.start.from, .heads = given_heads(given)});
    for (const std::string& warning : origin.weight_file->warnings()) console.warn(warning);
  }
  Plan plan = make_plan(*communicator, given, origin);
  if (origin.checkpoint) check_continues(*communicator, console, *origin.record, plan);
  if (!given.network_note.empty()) console.warn(given.network_note);
  comm::require_equal(*communicator, fingerprint_of(plan));
  const std::string faster_precision = announce(*communicator, console, plan);
  if (origin.weight_file) {
    console.info(origin.weight_file->beginnings(plan.workload.network->parameters(), plan.settings.start.reinitialize));
  }
  const TrainOptions& settings = plan.settings;
  const Workload& workload = plan.workload;
  if (settings.dry_run) {
    require_output(*communicator, console);
    return kExitDone;
  }
  const StopWatch verifying;
  const std::uint64_t verified =
      verify_data(*communicator, console, settings.data.verify,
                  std::array<const io::Dataset*, 2>{workload.training.get(), workload.validation.get()});
  if (verified > 0) {
    console.info(fmt::format("checksums of {} verified in {:.2f} s", format_bytes(verified), verifying.seconds()));
  }
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;

  Engine engine(session, *communicator, plan);
  console.info(engine.description());
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  signals.note();
  std::optional<io::RunFolder> folder = take_folder(*communicator, console, origin, plan);
  const Job job{.communicator = *communicator,
                .console = console,
                .plan = plan,
                .engine = engine,
                .signals = signals,
                .deadline = io_deadline,
                .time_left = announce_time(job_time, launched, console, plan),
                .faster_precision = faster_precision};
  std::optional<TrainingLoop> loop;  // outlives conclude(), which reports an error before this waits for a reader
  restore(*communicator, console, plan, engine, origin);
  loop.emplace(job, origin);
  return session.conclude([&] { return train_to_the_end(job, origin, std::move(folder), loop); });
}

}  // namespace lockstep::app
