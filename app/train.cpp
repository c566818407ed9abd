#include "app/train.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

#include "app/console.hpp"
#include "app/engine.hpp"
#include "app/evaluate.hpp"
#include "app/figures.hpp"
#include "app/placement.hpp"
#include "app/report.hpp"
#include "app/signals.hpp"
#include "app/snapshot.hpp"
#include "app/start.hpp"
#include "app/trainer.hpp"
#include "app/wall_time.hpp"
#include "app/workload.hpp"
#include "comm/agreement.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/prefetcher.hpp"
#include "io/run_folder.hpp"

namespace lockstep::app {

namespace {

constexpr int kExitDone = 0;
constexpr int kExitStoppedEarly = 75;  // EX_TEMPFAIL: requeue me

/// The checkpoint's history of validations has its own step.
bool was_validated(const io::TrainingRecord& record) {
  return record.metrics.find(fmt::format("\"step\":{},", record.step)) != std::string::npos;
}

/// A training run after everything has been checked and allocated: what happens between and after the steps.
class Run {
 public:
  Run(const TrainOptions& options, const Workload& workload, comm::Communicator& communicator, Console& console,
      Engine& engine, Trainer& trainer, WallTime wall_time)
      : options_(options),
        workload_(workload),
        communicator_(communicator),
        console_(console),
        engine_(engine),
        backend_(engine.backend()),
        model_(engine.model()),
        waits_on_devices_(!engine.backend().is_host()),
        trainer_(trainer),
        wall_time_(std::move(wall_time)),
        reporter_(console, options, workload.work, *workload.task, communicator.size(), trainer.steps_done()) {}

  /// Collective. Makes the folder, or takes it over where `continues`: where `from` is a checkpoint of this very run.
  void open_folder(bool continues, const io::TrainingRecord& from);
  /// Collective. The exit code.
  int train(const StopSignals& signals);

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
  /// What --config needs to repeat the run: without what belongs to one launch alone.
  std::string effective_configuration() const {
    TrainOptions effective = options_;
    effective.resume.clear();
    effective.force = false;
    effective.time_limit = "auto";
    return effective.to_ini();
  }
  bool last_step() const { return trainer_.steps_done() >= workload_.work.total_steps; }
  bool due(std::int64_t every, std::int64_t steps_ahead = 0) const {
    return every > 0 && (trainer_.steps_done() + steps_ahead) % every == 0;
  }
  bool reached_target(double metric) const {
    return options_.target_metric && !std::isnan(metric) && !better(*options_.target_metric, metric);
  }
  bool better(double a, double b) const { return workload_.task->is_better(a, b); }
  std::string nothing_left() const;
  void report(StepFigures figures);
  void histograms();
  void evaluate_now();
  void save_now();
  std::string summary() const;
  template <class Work>
  void on_rank0(Work work);

  const TrainOptions& options_;
  const Workload& workload_;
  comm::Communicator& communicator_;
  Console& console_;
  Engine& engine_;
  model::Backend& backend_;
  model::Model& model_;
  bool waits_on_devices_;
  bool noted_ = false;  ///< what the backend has to say after a step
  Trainer& trainer_;
  WallTime wall_time_;  ///< rank 0's decides
  Reporter reporter_;
  std::optional<io::RunFolder> folder_;              ///< rank 0
  std::optional<io::CheckpointWriter> checkpoints_;  ///< rank 0
  std::string error_;  ///< what went wrong on this rank between steps: said with the next vote
  StepFigures last_figures_;
  std::optional<Score> last_evaluation_;
  double best_metric_ = std::numeric_limits<double>::quiet_NaN();
  bool target_reached_ = false;
  bool owes_validation_ = false;  ///< the checkpoint was written where a validation was due, and before it
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  std::filesystem::path saved_;     ///< rank 0: the newest checkpoint of this process
  StopWatch running_;               ///< since train() was called
  double interrupted_seconds_ = 0;  ///< of running_, in evaluations and checkpoints
};

/// Rank 0's work with the outside world; a failure is kept for the next vote, so that all ranks end alike.
template <class Work>
void Run::on_rank0(Work work) {
  if (communicator_.rank() != 0 || !error_.empty()) return;
  try {
    work();
  } catch (const std::exception& e) {
    error_ = e.what();
  }
}

void Run::open_folder(bool continues, const io::TrainingRecord& from) {
  best_metric_ = from.step > 0 ? from.best_metric : best_metric_;
  target_reached_ = reached_target(best_metric_);
  if (continues) saved_at_ = from.step;
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    reporter_.set_history(from.metrics);
    owes_validation_ = from.step > 0 && due(workload_.work.evaluate_every) && !was_validated(from);
    folder_.emplace(options_.run, continues ? io::RunFolder::Open::resume : io::RunFolder::Open::fresh, options_.force);
    console_.attach_log(folder_->path() / "log.txt", continues);
    folder_->write_text("config.ini", effective_configuration());
    RunLogs logs;
    logs.metrics = std::make_unique<io::MetricsLog>(folder_->path() / "metrics.jsonl", continues, from.step);
    if (options_.tensorboard)
      logs.tensorboard = std::make_unique<io::TensorboardLog>(folder_->path(), continues ? from.step : -1);
    logs.still_owner = [this] { folder_->still_owner(); };
    reporter_.attach(std::move(logs));
    checkpoints_.emplace(io::CheckpointWriterOptions{
        .folder = folder_->checkpoints(), .keep = options_.keep, .still_owner = [this] { folder_->still_owner(); }});
  });
  communicator_.broadcast(std::as_writable_bytes(std::span(&owes_validation_, 1)), 0);
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
        *options_.target_metric, best_metric_);
  }
  return "";
}

void Run::report(StepFigures figures) {
  figures.epoch = epochs_done();
  last_figures_ = figures;
  reporter_.step(figures, time(), [this] { return model_.l2_loss(); });
  if (due(options_.histograms_every)) histograms();
}

void Run::histograms() {
  std::vector<float> parameters(model_.arena_elements());
  model_.download_group("parameters", parameters);
  std::vector<float> gradients(model_.arena_elements());
  model_.download_gradients(gradients);
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
  if (options_.evaluate_average) engine_.bring_together(model_.weights(model::Weights::average));
  const Score evaluation = evaluate(model_, *workload_.validation, communicator_,
                                    options_.evaluate_average ? model::Weights::average : model::Weights::current,
                                    options_.evaluation_batch, *workload_.task);
  evaluated_at_ = trainer_.steps_done();
  const double seconds = watch.seconds();
  interrupted_seconds_ += seconds;
  wall_time_.took_validation(seconds);
  if (!std::isfinite(evaluation.loss)) {  // the same on all ranks
    throw comm::AgreedError(
        fmt::format("step {}: the validation loss is not finite: the weights have grown too large, or {} holds numbers "
                    "that are not finite. No checkpoint was written of them; the one before is intact. A smaller "
                    "--learning-rate, --warmup-steps or --clip-norm usually helps",
                    evaluated_at_, options_.validation.string()));
  }
  if (std::isnan(best_metric_) || better(evaluation.metric, best_metric_)) best_metric_ = evaluation.metric;
  target_reached_ = reached_target(evaluation.metric);
  last_evaluation_ = evaluation;
  on_rank0([&] { reporter_.evaluation(evaluated_at_, epochs_done(), evaluation, options_.evaluate_average, seconds); });
}

void Run::save_now() {
  if (saved_at_ == trainer_.steps_done()) return;
  communicator_.note_activity("checkpoint", trainer_.steps_done());
  StopWatch watch;
  const CarriedState carried = gather_carried(communicator_, model_, workload_.work.global_batch);
  StateGroups state;
  if (!model_.updates_all()) state = gather_state(communicator_, model_, engine_.buckets());
  on_rank0([&] {
    const io::DatasetInfo& data = workload_.training->info();
    const bool epoch_over = trainer_.next_position() >= workload_.work.epoch_samples;
    const io::TrainingRecord record{.step = trainer_.steps_done(),
                                    .epoch = trainer_.epoch() + (epoch_over ? 1 : 0),
                                    .position = epoch_over ? 0 : trainer_.next_position(),
                                    .seed = options_.seed,
                                    .world_size = communicator_.size(),
                                    .network = network_identity(*workload_.network),
                                    .optimizer = options_.optimizer,
                                    .dataset = workload_.training->fingerprint(),
                                    .configuration = effective_configuration(),
                                    .program_version = program_version(),
                                    .best_metric = best_metric_,
                                    .metrics = reporter_.history(),
                                    .vocabulary = data.tokens ? io::to_json(*data.tokens) : ""};
    const comm::LongOperation writing(communicator_, "writing a checkpoint");
    if (state.empty()) state = gather_state(communicator_, model_, engine_.buckets());
    saved_ = save_checkpoint(*checkpoints_, model_, record, state, carried);
    reporter_.checkpoint(trainer_.steps_done(), saved_, watch.seconds());
  });
  // Whoever waits for rank 0 does so here, where a long operation is excused, not in a sum between devices.
  if (waits_on_devices_) communicator_.barrier();
  engine_.forget_residuals();
  saved_at_ = trainer_.steps_done();
  interrupted_seconds_ += watch.seconds();
  wall_time_.took_checkpoint(watch.seconds());
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

int Run::train(const StopSignals& signals) {
  running_.lap();
  if (owes_validation_) evaluate_now();
  const std::string idle = nothing_left();
  bool stopped = false;
  if (idle.empty()) {
    while (!last_step() && !target_reached_ && !stopped) {
      StopWatch watch;
      const bool time_is_up = wall_time_.is_up(
          {.validation = due(workload_.work.evaluate_every, 1), .checkpoint = due(workload_.work.checkpoint_every, 1)});
      const Trainer::Result step = trainer_.step({.stop = time_is_up || signals.stop_requested(), .error = error_});
      if (due(options_.histograms_every)) engine_.bring_together(model_.gradients());
      on_rank0([&] { report(step.figures); });
      if (!noted_) {
        for (const std::string& note : backend_.notes()) console_.warn(note);
        noted_ = true;
      }
      stopped = step.stop_requests > 0 && !last_step();  // in the last step there is nothing left to stop
      wall_time_.took_step(watch.seconds());
      // Who wants the job to stop may not wait long: the checkpoint comes first, the validation when it is resumed.
      if (due(workload_.work.evaluate_every) && !stopped) evaluate_now();
      if (due(workload_.work.checkpoint_every) && !last_step()) save_now();  // the last one waits for its validation
    }
    on_rank0([&] { reporter_.remaining(last_figures_, time(), [this] { return model_.l2_loss(); }); });
    const TimeSplit split = time();
    stopped = stopped && !target_reached_;
    if (!stopped) evaluate_now();
    on_rank0([&] { console_.info(fmt::format("time in steps: {}", format_split(split))); });
  }
  save_now();
  comm::all_succeed(communicator_, [&] {
    if (!error_.empty()) throw std::runtime_error(error_);
    const double seconds = running_.seconds();
    const std::string taken = seconds < 60 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
    if (stopped) {
      const std::string why = !wall_time_.reason().empty() ? fmt::format(": {};", wall_time_.reason())
                              : signals.stop_requested()   ? fmt::format(" on request ({})", signals.name())
                                                           : " on request";
      console_.info(fmt::format("stopped at step {}{} after {}{}; continue with --resume --run {}",
                                trainer_.steps_done(), why, taken, summary(), options_.run.string()));
    } else if (!idle.empty()) {
      console_.info(idle);
    } else {
      console_.info(fmt::format("{} at step {} after {}{}", target_reached_ ? "target reached" : "done",
                                trainer_.steps_done(), taken, summary()));
    }
  });
  return stopped ? kExitStoppedEarly : kExitDone;
}

}  // namespace

int run_train(comm::MpiSession& session, const TrainOptions& given) {
  const StopSignals signals;
  TrainOptions options = given;
  const auto communicator = comm::make_communicator(session, {.transport = parse_transport(options.execution.transport),
                                                              .deadline_seconds = options.execution.deadline});
  Console console(communicator->rank() == 0);
  if (!communicator->transport_note().empty()) console.warn(communicator->transport_note());
  console.set_progress_mode(parse_progress_mode(options.progress));
  const StopWatch launched;
  JobTime job_time;
  if (communicator->rank() == 0) job_time = find_job_time(options.time_limit);

  std::optional<CheckpointOnRank0> checkpoint = find_checkpoint(*communicator, console, options);
  Workload workload;
  all_succeed_or_usage(*communicator, [&] { workload = prepare_workload(options, communicator->size()); });
  if (checkpoint) check_continues(*communicator, console, checkpoint->record(), options, workload);
  const Place place =
      options.dry_run ? plan_place(*communicator, options.execution) : find_place(*communicator, options.execution);
  const model::LearningRateSchedule schedule = learning_rate_schedule(options, workload.work);
  const std::vector<comm::Slice> buckets = gradient_buckets(options, *workload.network, place, *communicator);
  all_succeed_or_usage(*communicator, [&] { check_sharding(options, place); });
  agree_on_start(*communicator, console, options, workload, place, buckets);
  if (options.dry_run) return kExitDone;
  verify_data(*communicator, console, options, workload);

  Engine engine(session, *communicator, place, options, *workload.network, workload.model, buckets);
  console.info(engine.description());
  model::Model& model = engine.model();
  if (checkpoint) {
    checkpoint->restore_carried(model, workload.work.global_batch);
    checkpoint->restore(model);
  } else {
    model.initialize(options.seed);
  }
  const io::TrainingRecord from = checkpoint ? checkpoint->record() : io::TrainingRecord{};
  const bool continues = checkpoint && is_of_run(checkpoint->file(), options.run);
  checkpoint.reset();

  io::Prefetcher prefetcher(*workload.training,
                            {.order = {.seed = options.seed, .shuffle = options.shuffle, .shard_counts = {}},
                             .streams = takes_streams(*workload.network),
                             .global_batch = workload.work.global_batch,
                             .accumulate = options.accumulate,
                             .rank = communicator->rank(),
                             .world = communicator->size(),
                             .first_epoch = from.epoch,
                             .first_position = from.position,
                             .memory = engine.backend().host_memory()});
  BatchFeed feed(prefetcher, feed_options(options, workload, engine.backend()));
  Trainer trainer(engine.parts(), workload.model.optimizer, schedule, options.accumulate, [&] { return feed.next(); });
  trainer.start_at(from.step, from.epoch, from.position);

  if (!job_time.problem.empty()) console.warn(job_time.problem);
  if (const std::string line = describe_job(job_time); !line.empty()) console.info(line);
  WallTime wall_time;
  if (job_time.left) {
    const std::size_t state_bytes = model.state_groups().size() * model.arena_elements() * sizeof(float);
    const double validation_samples =
        workload.validation ? static_cast<double>(workload.validation->info().samples) : 0;
    wall_time = WallTime(*job_time.left - launched.seconds(), checkpoint_estimate(state_bytes),
                         std::ceil(validation_samples / static_cast<double>(workload.work.global_batch)));
  }
  Run run(options, workload, *communicator, console, engine, trainer, std::move(wall_time));
  run.open_folder(continues, from);
  return run.train(signals);
}

}  // namespace lockstep::app
