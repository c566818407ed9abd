#include "app/train/train.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "app/engine/checkpointer.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/evaluation.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/trainer.hpp"
#include "app/options/options.hpp"
#include "app/plan/configuration.hpp"
#include "app/plan/fingerprint.hpp"
#include "app/plan/placement.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/sharding.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/result_file.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/announcement.hpp"
#include "app/train/report.hpp"
#include "app/train/resume.hpp"
#include "app/train/stop_vote.hpp"
#include "app/train/verify_data.hpp"
#include "app/train/wall_time.hpp"
#include "comm/agreement.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/prefetcher.hpp"
#include "io/run_folder.hpp"

namespace lockstep::app {

namespace {

constexpr int kExitDone = 0;
constexpr int kExitStoppedEarly = 75;  // EX_TEMPFAIL: requeue me

/// A training run after everything has been checked and allocated: what happens between and after the steps.
class Run {
 public:
  /// Collective. Takes the memory that checkpoints are written from. Throws comm::AgreedError.
  Run(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Trainer& trainer,
      WallTime wall_time)
      : options_(plan.settings),
        workload_(plan.workload),
        communicator_(communicator),
        console_(console),
        engine_(engine),
        backend_(engine.backend()),
        training_(engine.training()),
        waits_on_devices_(!engine.backend().is_host()),
        trainer_(trainer),
        wall_time_(std::move(wall_time)),
        checkpointer_(engine.saved(workload_.work.global_batch, plan.checkpoint_writers)),
        reporter_(console, options_.reports, workload_.work, *workload_.task, communicator.size(),
                  trainer.steps_done()) {}

  /// Collective. Makes the folder, or goes on in it where `continues`: where `from` is a checkpoint of this very run.
  /// `taken`: rank 0's, where it owns the folder already. `deadline` outlives the run.
  void open_folder(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
                   io::IoDeadline& deadline);
  /// Collective. The exit code.
  int train(StopSignals& signals);

 private:
  double epochs_done() const {
    return static_cast<double>(trainer_.epoch()) +
           static_cast<double>(trainer_.next_position()) / static_cast<double>(workload_.work.epoch_samples);
  }
  TimeSplit time() const {
    TimeSplit split = trainer_.time();
    split.total = running_.seconds() - interrupted_seconds_;
    return split;
  }
  bool last_step() const { return trainer_.steps_done() >= workload_.work.total_steps; }
  bool due(std::int64_t every, std::int64_t steps_ahead = 0) const {
    return every > 0 && (trainer_.steps_done() + steps_ahead) % every == 0;
  }
  bool reached_target(double metric) const {
    return options_.validation.target_metric && !std::isnan(metric) &&
           !better(*options_.validation.target_metric, metric);
  }
  bool better(double a, double b) const { return workload_.task->is_better(a, b); }
  std::string nothing_left() const;
  void report(StepFigures figures);
  void histograms();
  void evaluate_now();
  io::TrainingRecord record() const;
  void check_own_shards();
  void require_unchanged_data();
  void save_now();
  void await_checkpoint();
  void report_checkpoint();
  void make_steps(const StopSignals& signals);
  Trainer::Request next_request(const StopSignals& signals);
  std::string summary() const;
  std::string ending(const StopSignals& signals) const;
  template <class Work>
  void keep_error(Work work);
  template <class Work>
  void on_rank0(Work work);

  const TrainOptions& options_;
  const Workload& workload_;
  comm::Communicator& communicator_;
  Console& console_;
  Engine& engine_;
  model::Backend& backend_;
  model::Training& training_;
  bool waits_on_devices_;
  bool noted_ = false;  ///< what the backend has to say after a step
  Trainer& trainer_;
  WallTime wall_time_;  ///< rank 0's decides
  Checkpointer checkpointer_;
  Reporter reporter_;
  std::shared_ptr<io::RunFolder> folder_;  ///< rank 0; also of the thread that writes a checkpoint
  std::string error_;                      ///< what went wrong on this rank between steps: said in the next step
  StepFigures last_figures_;
  std::optional<Score> last_evaluation_;
  double best_metric_ = std::numeric_limits<double>::quiet_NaN();
  bool target_reached_ = false, stopped_ = false;
  bool owes_validation_ = false;  ///< the checkpoint was written where a validation was due, and before it
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  std::int64_t validated_before_ = -1;  ///< by the run that this one goes on from
  std::filesystem::path saved_;         ///< rank 0: the newest checkpoint of this process
  StopWatch running_;                   ///< since train() was called
  double interrupted_seconds_ = 0;      ///< of running_, in evaluations and in waits for checkpoints
};

/// A failure is kept for the next step, so that all ranks end alike.
template <class Work>
void Run::keep_error(Work work) {
  try {
    const comm::LongOperation writing(communicator_);  // the file system may be slow
    work();
  } catch (const std::exception& e) {
    if (error_.empty()) error_ = e.what();
  }
}

/// Rank 0's work with the outside world.
template <class Work>
void Run::on_rank0(Work work) {
  if (communicator_.rank() == 0 && error_.empty()) keep_error(work);
}

void Run::open_folder(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
                      io::IoDeadline& deadline) {
  best_metric_ = from.step > 0 ? from.best_metric : best_metric_;
  target_reached_ = reached_target(best_metric_);
  if (continues) saved_at_ = from.step;
  validated_before_ = from.validated_step;
  owes_validation_ = from.step > 0 && due(workload_.work.evaluate_every) && validated_before_ < from.step;
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0)
      return checkpointer_.open({.folder = options_.run.folder / "checkpoints"}, &deadline);
    reporter_.set_history(from.metrics);
    if (taken) {
      folder_ = std::make_shared<io::RunFolder>(std::move(*taken));
      if (!continues) folder_->start_over();
    } else {
      folder_ = std::make_shared<io::RunFolder>(options_.run.folder,
                                                continues ? io::RunFolder::Open::resume : io::RunFolder::Open::fresh,
                                                options_.run.force, &deadline);
    }
    console_.attach_log(folder_->path() / "log.txt", continues, &deadline);
    folder_->write_text("config.ini", stored_configuration(options_));
    RunLogs logs;
    logs.metrics = std::make_unique<io::MetricsLog>(folder_->path() / "metrics.jsonl", continues, from.step, &deadline);
    if (continues) record_unrecorded_checkpoints(*logs.metrics, folder_->path(), from.step);
    if (options_.reports.tensorboard)
      logs.tensorboard = std::make_unique<io::TensorboardLog>(folder_->path(), continues ? from.step : -1, &deadline);
    logs.still_owner = [this] { folder_->still_owner(); };
    reporter_.attach(std::move(logs));
    checkpointer_.open({.folder = folder_->checkpoints(),
                        .keep = options_.run.keep,
                        .still_owner = [folder = folder_] { folder->still_owner(); }},
                       &deadline);
  });
}

/// Why a resumed run has no step to make; empty: it has.
std::string Run::nothing_left() const {
  const std::int64_t done = trainer_.steps_done();
  if (done >= workload_.work.total_steps) {
    return fmt::format(
        "step {} is done and this run ends at step {}: nothing is left to do (more --epochs or --steps go on from "
        "here)",
        with_commas(done), with_commas(workload_.work.total_steps));
  }
  if (target_reached_) {
    return fmt::format(
        "the target metric {:.6g} is reached (best so far: {:.6g}): nothing is left to do (another --target-metric "
        "goes on "
        "from here)",
        *options_.validation.target_metric, best_metric_);
  }
  return "";
}

/// Collective where histograms are due.
void Run::report(StepFigures figures) {
  const bool with_histograms = due(options_.reports.histograms_every);
  if (with_histograms) engine_.bring_together(training_.parameters.gradient_elements());
  on_rank0([&] {
    figures.epoch = epochs_done();
    last_figures_ = figures;
    reporter_.step(figures, time(), [this] { return training_.optimizer.l2_loss(); });
    if (with_histograms) histograms();
  });
  if (noted_) return;
  for (const std::string& note : backend_.notes()) console_.warn(note);
  noted_ = true;
}

void Run::histograms() {
  std::vector<float> parameters(training_.parameters.elements());
  training_.parameters.download_group("parameters", parameters);
  std::vector<float> gradients(training_.parameters.elements());
  training_.parameters.download_gradients(gradients);
  for (const model::Parameter& parameter : workload_.network->parameters().all()) {
    reporter_.histogram("weights/" + parameter.name, trainer_.steps_done(),
                        std::span<const float>(parameters).subspan(parameter.offset, parameter.count));
    reporter_.histogram("gradients/" + parameter.name, trainer_.steps_done(),
                        std::span<const float>(gradients).subspan(parameter.offset, parameter.count));
  }
}

void Run::evaluate_now() {
  if (!workload_.validation || evaluated_at_ == trainer_.steps_done()) return;
  communicator_.note_activity("validation", trainer_.steps_done());
  StopWatch watch;
  if (options_.validation.average)
    engine_.bring_together(training_.parameters.weight_elements(model::Weights::average));
  const Score evaluation = evaluate(training_.model, *workload_.validation, communicator_,
                                    options_.validation.average ? model::Weights::average : model::Weights::current,
                                    options_.validation.batch, *workload_.task);
  evaluated_at_ = trainer_.steps_done();
  const double seconds = watch.seconds();
  interrupted_seconds_ += seconds;
  wall_time_.took_validation(seconds);
  if (!std::isfinite(evaluation.loss)) {  // the same on all ranks
    throw comm::AgreedError(
        fmt::format("step {}: the validation loss is not finite: the weights have grown too large, or {} holds numbers "
                    "that are not finite. No checkpoint was written of them; the one before is intact. A smaller "
                    "--learning-rate, --warmup-steps or --clip-norm usually helps",
                    evaluated_at_, options_.data.validation.string()));
  }
  if (std::isnan(best_metric_) || better(evaluation.metric, best_metric_)) best_metric_ = evaluation.metric;
  target_reached_ = reached_target(evaluation.metric);
  last_evaluation_ = evaluation;
  on_rank0(
      [&] { reporter_.evaluation(evaluated_at_, epochs_done(), evaluation, options_.validation.average, seconds); });
}

/// Rank 0's is the whole one.
io::TrainingRecord Run::record() const {
  if (communicator_.rank() != 0) {
    io::TrainingRecord record;
    record.step = trainer_.steps_done();
    return record;
  }
  const io::DatasetInfo& data = workload_.training->info();
  const bool epoch_over = trainer_.next_position() >= workload_.work.epoch_samples;
  return {.step = trainer_.steps_done(),
          .epoch = trainer_.epoch() + (epoch_over ? 1 : 0),
          .position = epoch_over ? 0 : trainer_.next_position(),
          .seed = options_.work.seed,
          .world_size = communicator_.size(),
          .network = network_identity(options_.network.name, *workload_.network),
          .optimizer = std::string(model::name_of(options_.optimizer.kind)),
          .dataset = workload_.training->fingerprint(),
          .configuration = stored_configuration(options_),
          .program_version = program_version(),
          .best_metric = best_metric_,
          .validated_step = std::max(evaluated_at_, validated_before_),
          .metrics = reporter_.history(),
          .vocabulary = data.tokens ? io::to_json(*data.tokens) : ""};
}

/// Each shard is looked at by one rank. Throws io::FileError where one has changed since it was opened.
void Run::check_own_shards() {
  communicator_.note_activity("looking whether the data have changed", trainer_.steps_done());
  for (io::Dataset* data : {workload_.training.get(), workload_.validation.get()}) {
    if (data != nullptr) data->check_unchanged(communicator_.rank(), communicator_.size());
  }
}

/// Collective. Weights that have seen other data than the run began with are not saved.
void Run::require_unchanged_data() {
  comm::all_succeed(communicator_, [&] { check_own_shards(); });
}

/// Copies the state; the next steps change the original while rank 0 writes the copy.
void Run::save_now() {
  if (saved_at_ == trainer_.steps_done()) return;
  require_unchanged_data();
  communicator_.note_activity("checkpoint", trainer_.steps_done());
  await_checkpoint();
  const StopWatch watch;
  checkpointer_.take();
  keep_error([&] { checkpointer_.write(record()); });
  // Whoever waits for rank 0 does so here, where a long operation is excused, not in a sum between devices.
  if (waits_on_devices_) {
    communicator_.barrier();
    communicator_.wait();
  }
  engine_.forget_residuals();
  saved_at_ = trainer_.steps_done();
  interrupted_seconds_ += watch.seconds();
}

/// There is one copy: the next checkpoint waits for the one before, and so does the end.
void Run::await_checkpoint() {
  const StopWatch watch;
  checkpointer_.wait();
  interrupted_seconds_ += watch.seconds();
  report_checkpoint();
}

/// A failure to write one is said in the next step's vote.
void Run::report_checkpoint() {
  checkpointer_.advance();
  on_rank0([&] {
    const std::optional<WrittenCheckpoint> written = checkpointer_.poll();
    if (!written) return;
    saved_ = written->file;
    reporter_.checkpoint(*written);
    wall_time_.took_checkpoint(written->seconds);
  });
}

/// What the run has come to: the metric, the checkpoint, the time.
std::string Run::summary() const {
  std::string text;
  if (last_evaluation_) {
    text += fmt::format("; validation{} {}",
                        evaluated_at_ == trainer_.steps_done() ? "" : fmt::format(" at step {}", evaluated_at_),
                        workload_.task->format_evaluation(*last_evaluation_));
    if (better(best_metric_, last_evaluation_->metric)) text += fmt::format(", best metric {:.6g}", best_metric_);
  }
  if (!saved_.empty()) text += fmt::format("; checkpoint {}", saved_.string());
  return text;
}

/// The algorithm. A step is: next batch, forward, backward (reducing as gradients appear), update (Trainer::step).
void Run::make_steps(const StopSignals& signals) {
  while (!last_step() && !target_reached_ && !stopped_) {
    StopWatch watch;
    const Trainer::Result step = trainer_.step(next_request(signals));
    report(step.figures);
    report_checkpoint();
    stopped_ = step.stop_requests > 0 && !last_step();  // in the last step there is nothing left to stop
    wall_time_.took_step(watch.seconds());
    if (trainer_.next_position() >= workload_.work.epoch_samples) keep_error([this] { check_own_shards(); });
    // Who wants the job to stop may not wait long: the checkpoint comes first, the validation when it is resumed.
    if (due(workload_.work.evaluate_every) && !stopped_) evaluate_now();
    if (due(workload_.work.checkpoint_every) && !last_step()) save_now();  // the last one waits for its validation
  }
  on_rank0([&] { reporter_.remaining(last_figures_, time(), [this] { return training_.optimizer.l2_loss(); }); });
}

int Run::train(StopSignals& signals) {
  running_.lap();
  if (owes_validation_) evaluate_now();
  const std::string idle = nothing_left();
  if (idle.empty()) {
    make_steps(signals);
    const TimeSplit split = time();
    stopped_ = stopped_ && !target_reached_;
    if (!stopped_) evaluate_now();
    on_rank0([&] { console_.info(fmt::format("time in steps: {}", format_split(split))); });
  }
  save_now();
  await_checkpoint();
  signals.ignore();  // nothing is left to stop, and the exit code is to tell how it went
  if (idle.empty()) {
    on_rank0([&] {
      reporter_.end(trainer_.steps_done(), stopped_ ? "stopped" : target_reached_ ? "target reached" : "done");
    });
  }
  comm::all_succeed(communicator_, [&] {
    if (!error_.empty()) throw std::runtime_error(error_);
    console_.info(idle.empty() || stopped_ ? ending(signals) : idle);
  });
  return stopped_ ? kExitStoppedEarly : kExitDone;
}

/// What this rank wants of the next step.
Trainer::Request Run::next_request(const StopSignals& signals) {
  const bool time_is_up =
      wall_time_.is_up({.validation = due(workload_.work.evaluate_every, 1),
                        .checkpoint = due(workload_.work.checkpoint_every, 1) || checkpointer_.under_way()});
  return {.stop = time_is_up || signals.stop_requested(), .error = error_};
}

/// The last line of a run that made steps.
std::string Run::ending(const StopSignals& signals) const {
  const double seconds = running_.seconds();
  const std::string taken = seconds < 60 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
  if (!stopped_) {
    return fmt::format("{} at step {} after {}{}", target_reached_ ? "target reached" : "done", trainer_.steps_done(),
                       taken, summary());
  }
  const std::string why = !wall_time_.reason().empty() ? fmt::format(": {};", wall_time_.reason())
                          : signals.stop_requested()   ? fmt::format(" on request ({})", signals.name())
                                                       : " on request";
  return fmt::format("stopped at step {}{} after {}{}; continue with --resume --run {} (exit code {})",
                     trainer_.steps_done(), why, taken, summary(), options_.run.folder.string(), kExitStoppedEarly);
}

}  // namespace

int run_train(comm::MpiSession& session, const TrainOptions& given, StopSignals& signals) {
  const auto communicator =
      comm::make_communicator(session, {.transport = given.execution.transport,
                                        .wire = given.execution.wire,
                                        .overlap = true,
                                        .deadline_seconds = given.execution.deadline,
                                        .excuse_seconds = given.execution.io_deadline + given.execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *communicator, given.execution.io_deadline);
  Console console(communicator->rank() == 0);
  if (!communicator->transport_note().empty()) console.warn(communicator->transport_note());
  console.set_progress(given.reports.progress);
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  const StopWatch launched;
  JobTime job_time;
  if (communicator->rank() == 0) job_time = find_job_time(given.run.time_limit);

  Origin origin = find_origin(*communicator, console, given.run, given.network.name, io_deadline);
  const Plan plan = make_plan(*communicator, given,
                              {.folder = origin.folder,
                               .record = origin.record(),
                               .takes_folder_over = origin.takes_folder_over,
                               .deadline = &io_deadline});
  if (origin.checkpoint) check_continues(*communicator, console, *origin.record(), plan);
  comm::require_equal(*communicator, fingerprint_of(plan));
  announce(*communicator, console, plan);
  const TrainOptions& settings = plan.settings;
  const Workload& workload = plan.workload;
  if (settings.dry_run) {
    require_output(*communicator, console);
    return kExitDone;
  }
  verify_data(*communicator, console, settings.data.verify, workload);
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;

  Engine engine(session, *communicator, plan.place, settings.execution, workload, plan.buckets);
  console.info(engine.description());
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  // From here on nobody else writes there. Who did a moment ago may have gone on beyond the checkpoint that was read.
  std::optional<io::RunFolder> folder;
  if (settings.run.resume.from == Resume::From::newest) {
    comm::all_succeed(*communicator, [&] {
      if (communicator->rank() == 0)
        folder.emplace(settings.run.folder, io::RunFolder::Open::resume, false, &io_deadline);
    });
    if (found_newer(*communicator, console, origin)) check_continues(*communicator, console, *origin.record(), plan);
  }
  model::Training& training = engine.training();
  if (origin.checkpoint) {
    origin.checkpoint->restore_recurrent_state(training.model.recurrent_state(), workload.work.global_batch);
    origin.checkpoint->restore(training.parameters);
  } else {
    training.parameters.initialize(settings.work.seed);
  }
  const io::TrainingRecord from = origin.checkpoint ? *origin.record() : io::TrainingRecord{};
  const bool continues = origin.checkpoint && is_of_run(origin.checkpoint->file(), settings.run.folder);
  origin.checkpoint.reset();

  io::Prefetcher prefetcher(
      *workload.training, {.order = {.seed = settings.work.seed, .shuffle = settings.data.shuffle, .shard_counts = {}},
                           .stateful = is_recurrent(*workload.network),
                           .global_batch = workload.work.global_batch,
                           .accumulate = settings.work.accumulate,
                           .rank = communicator->rank(),
                           .world = communicator->size(),
                           .first_epoch = from.epoch,
                           .first_position = from.position,
                           .memory = engine.backend().host_memory()});
  BatchFeed feed(prefetcher, *communicator, feed_options(settings, workload, engine.backend()));
  Trainer trainer(engine.parts(), plan.schedule, settings.work.accumulate, [&] { return feed.next(); });
  trainer.start_at(from.step, from.epoch, from.position);

  if (!job_time.problem.empty()) console.warn(job_time.problem);
  if (const std::string line = describe_job(job_time); !line.empty()) console.info(line);
  WallTime wall_time;
  if (job_time.left) {
    const std::size_t state_bytes =
        training.parameters.state_groups().size() * training.parameters.elements() * sizeof(float);
    const double validation_samples =
        workload.validation ? static_cast<double>(workload.validation->info().samples) : 0;
    wall_time = WallTime(*job_time.left - launched.seconds(), checkpoint_estimate(state_bytes),
                         std::ceil(validation_samples / static_cast<double>(workload.work.global_batch)));
  }
  Run run(plan, *communicator, console, engine, trainer, std::move(wall_time));
  // What goes wrong from here on is said before the reader is waited for, which may be stuck.
  return session.conclude([&] {
    run.open_folder(std::move(folder), continues, from, io_deadline);
    return run.train(signals);
  });
}

}  // namespace lockstep::app
