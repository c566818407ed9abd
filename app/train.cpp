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
#include "app/evaluate.hpp"
#include "app/figures.hpp"
#include "app/report.hpp"
#include "app/signals.hpp"
#include "app/snapshot.hpp"
#include "app/start.hpp"
#include "app/trainer.hpp"
#include "app/workload.hpp"
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
  Run(const TrainOptions& options, const Workload& workload, comm::Communicator& communicator, Console& console,
      model::Model& model, Trainer& trainer, io::Prefetcher& prefetcher)
      : options_(options),
        workload_(workload),
        communicator_(communicator),
        console_(console),
        model_(model),
        trainer_(trainer),
        prefetcher_(prefetcher),
        reporter_(console, options, workload.work, workload.model.loss, communicator.size(), trainer.steps_done()),
        stall_before_(prefetcher.stall_seconds()) {}

  void open_folder(bool resuming, const io::TrainingRecord& record);
  void restore(const io::TrainingRecord& record) {
    best_metric_ = record.best_metric;
    reporter_.set_history(record.metrics);
  }
  int train(const StopSignals& signals);

 private:
  double epochs_done() const {
    return static_cast<double>(trainer_.epoch()) +
           static_cast<double>(trainer_.next_position()) / static_cast<double>(workload_.training->info().samples);
  }
  TimeSplit time() const {
    TimeSplit split = trainer_.time();
    split.input = prefetcher_.stall_seconds() - stall_before_;
    split.compute -= split.input;
    return split;
  }
  /// What --config needs to repeat the run: without what belongs to one launch alone.
  std::string effective_configuration() const {
    TrainOptions effective = options_;
    effective.resume.clear();
    effective.force = false;
    return effective.to_ini();
  }
  bool last_step() const { return trainer_.steps_done() >= workload_.work.total_steps; }
  bool due(std::int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }
  void report(StepFigures figures);
  void histograms();
  bool evaluate_now();
  void save_now();
  template <class Work> void on_rank0(Work work);

  const TrainOptions& options_;
  const Workload& workload_;
  comm::Communicator& communicator_;
  Console& console_;
  model::Model& model_;
  Trainer& trainer_;
  io::Prefetcher& prefetcher_;
  Reporter reporter_;
  std::optional<io::RunFolder> folder_;             ///< rank 0
  std::optional<io::CheckpointWriter> checkpoints_;  ///< rank 0
  std::string error_;  ///< what went wrong on this rank between steps: said with the next vote
  double best_metric_ = std::numeric_limits<double>::quiet_NaN();
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  double stall_before_;
};

/// Rank 0's work with the outside world; a failure is kept for the next vote, so that all ranks end alike.
template <class Work> void Run::on_rank0(Work work) {
  if (communicator_.rank() != 0 || !error_.empty()) return;
  try {
    work();
  } catch (const std::exception& e) {
    error_ = e.what();
  }
}

void Run::open_folder(bool resuming, const io::TrainingRecord& record) {
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    folder_.emplace(options_.run, resuming ? io::RunFolder::Open::resume : io::RunFolder::Open::fresh, options_.force);
    console_.attach_log(folder_->path() / "log.txt", resuming);
    folder_->write_text("config.ini", effective_configuration());
    RunLogs logs;
    logs.metrics = std::make_unique<io::MetricsLog>(folder_->path() / "metrics.jsonl", resuming, record.step);
    if (options_.tensorboard) logs.tensorboard = std::make_unique<io::TensorboardLog>(folder_->path(), resuming ? record.step : -1);
    reporter_.attach(std::move(logs));
    checkpoints_.emplace(io::CheckpointWriterOptions{
        .folder = folder_->checkpoints(), .keep = options_.keep, .still_owner = [this] { folder_->still_owner(); }});
  });
}

void Run::report(StepFigures figures) {
  figures.epoch = epochs_done();
  reporter_.step(figures, time(), [this] { return model_.l2_loss(); });
  if (due(options_.histograms_every)) histograms();
}

void Run::histograms() {
  std::vector<float> parameters(model_.arena_elements());
  model_.download_group("parameters", parameters);
  const std::span<const float> gradients = model_.gradients();
  for (const model::Parameter& parameter : workload_.network->parameters().all()) {
    reporter_.histogram("weights/" + parameter.name, trainer_.steps_done(),
                        std::span<const float>(parameters).subspan(parameter.offset, parameter.count));
    reporter_.histogram("gradients/" + parameter.name, trainer_.steps_done(), gradients.subspan(parameter.offset, parameter.count));
  }
}

/// True when the target metric is reached.
bool Run::evaluate_now() {
  if (!workload_.validation || evaluated_at_ == trainer_.steps_done()) return false;
  communicator_.note_activity("validation", trainer_.steps_done());
  StopWatch watch;
  const Evaluation evaluation =
      evaluate(model_, *workload_.validation, communicator_,
               options_.evaluate_average ? model::Weights::average : model::Weights::current, options_.evaluation_batch);
  evaluated_at_ = trainer_.steps_done();
  const double seconds = watch.seconds();
  reporter_.exclude(seconds);
  const bool higher_is_better = workload_.model.loss == model::LossKind::softmax_cross_entropy;
  const auto better = [&](double a, double b) { return higher_is_better ? a > b : a < b; };
  if (std::isnan(best_metric_) || better(evaluation.metric, best_metric_)) best_metric_ = evaluation.metric;
  on_rank0([&] { reporter_.evaluation(trainer_.steps_done(), epochs_done(), evaluation, options_.evaluate_average, seconds); });
  return options_.target_metric && !better(*options_.target_metric, evaluation.metric);
}

void Run::save_now() {
  if (saved_at_ == trainer_.steps_done()) return;
  communicator_.note_activity("checkpoint", trainer_.steps_done());
  StopWatch watch;
  on_rank0([&] {
    const bool epoch_over = trainer_.next_position() >= workload_.training->info().samples;
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
                                    .metrics = reporter_.history()};
    const comm::LongOperation writing(communicator_, "writing a checkpoint");
    const std::filesystem::path file = save_checkpoint(*checkpoints_, model_, record);
    reporter_.checkpoint(trainer_.steps_done(), file, watch.seconds());
  });
  saved_at_ = trainer_.steps_done();
  reporter_.exclude(watch.seconds());
}

int Run::train(const StopSignals& signals) {
  bool target_reached = false;
  int stop_requests = 0;
  while (!last_step() && !target_reached && stop_requests == 0) {
    const Trainer::Result step = trainer_.step({.stop = signals.stop_requested(), .error = error_});
    on_rank0([&] { report(step.figures); });
    stop_requests = step.stop_requests;
    if (due(workload_.work.evaluate_every)) target_reached = evaluate_now();
    if (due(workload_.work.checkpoint_every)) save_now();
  }
  if (stop_requests == 0) target_reached = evaluate_now() || target_reached;
  save_now();
  comm::all_succeed(communicator_, [&] {
    if (!error_.empty()) throw std::runtime_error(error_);
    if (stop_requests > 0) {
      console_.info(fmt::format("stopped at step {} on request{}; continue with --resume --run {}", trainer_.steps_done(),
                                signals.stop_requested() ? fmt::format(" ({})", signals.name()) : "", options_.run.string()));
    } else if (target_reached) {
      console_.info(fmt::format("target reached at step {}", trainer_.steps_done()));
    }
  });
  console_.info(fmt::format("time in steps: {}", format_split(time())));
  return stop_requests > 0 ? kExitStoppedEarly : kExitDone;
}

}  // namespace

int run_train(comm::MpiSession& session, const TrainOptions& given) {
  const StopSignals signals;
  TrainOptions options = given;
  const auto communicator = comm::make_communicator(
      session, {.transport = parse_transport(options.transport), .deadline_seconds = options.deadline});
  Console console(communicator->rank() == 0);
  console.set_progress_mode(parse_progress_mode(options.progress));

  std::optional<CheckpointOnRank0> checkpoint = find_checkpoint(*communicator, console, options);
  Workload workload;
  all_succeed_or_usage(*communicator, [&] { workload = prepare_workload(options, communicator->size()); });
  if (checkpoint) check_continues(*communicator, console, checkpoint->record(), options, workload);
  const model::LearningRateSchedule schedule = learning_rate_schedule(options, workload.work);
  const std::vector<comm::Slice> buckets =
      comm::bucket_schedule(workload.network->parameters().slice_ends(), *communicator, static_cast<std::size_t>(options.bucket_size));
  agree_on_start(*communicator, console, options, workload, buckets);
  if (options.dry_run) return kExitDone;
  verify_data(*communicator, console, options, workload);

  const auto backend = model::make_backend("cpu", {.threads = options.threads});
  const auto gradient_memory = communicator->reduction_memory(workload.network->parameters().arena_elements() * sizeof(float));
  workload.model.gradient_memory = gradient_memory.get();
  model::Model model(*backend, *workload.network, workload.model);
  if (checkpoint) {
    checkpoint->restore(model);
  } else {
    model.initialize(options.seed);
  }
  const io::TrainingRecord from = checkpoint ? checkpoint->record() : io::TrainingRecord{};
  checkpoint.reset();

  io::Prefetcher prefetcher(*workload.training, {.order = {.seed = options.seed, .shuffle = options.shuffle, .shard_counts = {}},
                                                 .global_batch = workload.work.global_batch,
                                                 .accumulate = options.accumulate,
                                                 .rank = communicator->rank(),
                                                 .world = communicator->size(),
                                                 .first_epoch = from.epoch,
                                                 .first_position = from.position});
  comm::GradientReducer reducer(*communicator, model.gradients(), buckets);
  Trainer trainer(model, *communicator, reducer, workload.model.optimizer, schedule, options.accumulate,
                  [&, x_type = element_type(workload.training->x_type())] { return next_micro_batch(prefetcher, x_type); });
  trainer.start_at(from.step);

  Run run(options, workload, *communicator, console, model, trainer, prefetcher);
  if (from.step > 0) run.restore(from);
  run.open_folder(from.step > 0, from);
  return run.train(signals);
}

}  // namespace lockstep::app
