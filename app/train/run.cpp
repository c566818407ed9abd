#include "app/train/run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "app/engine/divergence.hpp"
#include "app/options/choices.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/figures.hpp"
#include "app/train/resume.hpp"
#include "comm/agreement.hpp"
#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace {

/// Equal for equal data: uses the checksums of the shards, or the path for files without checksums.
std::string identity_of(const io::Dataset& data, const std::filesystem::path& path) {
  std::string text = data.fingerprint();
  const bool checked = std::ranges::all_of(data.shards(), [](const io::ShardInfo& s) { return !s.checksum_x.empty(); });
  if (!checked) text += std::filesystem::absolute(data.shards().empty() ? path : data.shards()[0].file).string();
  return io::to_hex(io::checksum(std::as_bytes(std::span(text))));
}

}  // namespace

Run::Run(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Trainer& trainer,
         WallTime wall_time, std::function<void(DataPlace)> go_on_at)
    : run_(plan.settings.run),
      agree_(plan.settings.agree),
      validation_(plan.settings.validation),
      reports_(plan.settings.reports),
      identity_(plan.record),
      workload_(plan.workload),
      communicator_(communicator),
      console_(console),
      engine_(engine),
      backend_(engine.backend()),
      training_(engine.training()),
      waits_on_devices_(!engine.backend().is_host()),
      trainer_(trainer),
      wall_time_(std::move(wall_time)),
      go_on_at_(std::move(go_on_at)),
      checkpointer_(engine.saved(workload_.work, plan.checkpoint_writers)),
      reporter_(console, reports_, workload_.work, *workload_.task, communicator.size(), trainer.steps_done()),
      patience_(validation_.patience, validation_.min_delta,
                [task = *workload_.task](double a, double b) { return task.is_better(a, b); }) {
  reporter_.compare_with(workload_.constant_score);
  if (workload_.validation) reporter_.validates_on(identity_of(*workload_.validation, workload_.paths.validation));
}

namespace {

/// True if the run's validations were compared by this metric so far.
bool compares_by(const io::TrainingRecord& record, BestBy metric) {
  try {
    return train_options_from_ini(record.configuration).validation.best_by == metric;
  } catch (const UsageError&) {  // the record is from a version without other metrics
    return metric == BestBy::usual;
  }
}

}  // namespace

/// Keeps a failure for the next step, so that all ranks end alike.
template <class Work>
void Run::keep_error(Work work) {
  try {
    const comm::LongOperation writing(communicator_);  // the file system may be slow
    work();
  } catch (const std::exception& e) {
    if (error_.empty()) error_ = e.what();
  }
}

/// Runs the work of all ranks between steps; with servers a worker may die in it.
template <class Work>
void Run::together(Work work) {
  ServerRounds* const servers = engine_.server_rounds();
  if (servers == nullptr) return work();
  servers->together(work, [&](const std::string& text) { console_.warn(text); });
}

/// Runs rank 0's input and output.
template <class Work>
void Run::on_rank0(Work work) {
  if (communicator_.rank() == 0 && error_.empty()) keep_error(work);
}

void Run::open_folder(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
                      io::IoDeadline& deadline) {
  if (continues) saved_at_ = from.step;
  validated_before_ = from.validated_step;
  first_step_ = from.step;
  io_deadline_ = &deadline;
  steps_before_ = agree_.round_begin(std::max<std::int64_t>(0, from.step - 1));
  owes_validation_ = from.step > 0 && due(workload_.work.evaluate_every) && validated_before_ < from.step;
  count_earlier_validations(from);
  target_reached_ = reached_target(best_metric_);
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return checkpointer_.open({.folder = run_.folder / "checkpoints"}, &deadline);
    reporter_.set_history(from.metrics);
    if (taken) {
      folder_ = std::make_shared<io::RunFolder>(std::move(*taken));
      if (!continues) folder_->start_over();
    } else {
      folder_ = std::make_shared<io::RunFolder>(
          run_.folder, continues ? io::RunFolder::Open::resume : io::RunFolder::Open::fresh, run_.force, &deadline);
    }
    console_.attach_log(folder_->path() / "log.txt", continues);
    folder_->write_text("config.ini", identity_.configuration);
    RunLogs logs;
    logs.metrics = std::make_unique<io::MetricsLog>(folder_->path() / "metrics.jsonl", continues, from.step, &deadline);
    if (continues) record_unrecorded_checkpoints(*logs.metrics, folder_->path(), from, deadline);
    if (reports_.tensorboard)
      logs.tensorboard = std::make_unique<io::TensorboardLog>(folder_->path(), continues ? from.step : -1, &deadline);
    logs.still_owner = [this] { folder_->still_owner(); };
    reporter_.attach(std::move(logs));
    checkpointer_.open(
        {.folder = folder_->checkpoints(),
         .keep = run_.keep,
         .goes_on_from = continues ? from.step : -1,
         .keep_best = run_.keep_best,
         .is_better = [task = *workload_.task](double a, double b) { return task.is_better(a, b); },
         .metrics = io::numbers_by_step(from.metrics, "validation", workload_.task->best_key()),
         .losses = io::numbers_by_step(from.metrics, "validation", "loss"),
         .lies_behind = [from](std::int64_t step, const std::string& its) { return lies_behind(from, step, its); },
         .still_owner = [folder = folder_] { folder->still_owner(); }},
        &deadline);
  });
}

void Run::note(const io::MetricRecord& record) {
  on_rank0([&] { reporter_.note(record); });
}

std::optional<io::RunFolder> Run::leave() {
  await_checkpoint();
  comm::all_succeed(communicator_, [&] {
    if (!error_.empty()) throw std::runtime_error(error_);
  });
  return folder_ ? std::optional(std::move(*folder_)) : std::nullopt;
}

/// Collective. Throws Divergence if the loss leaps and the run may roll back.
void Run::watch_loss(const StepFigures& figures) {
  if (run_.roll_back == 0 || figures.samples <= 0) return;
  loss_watch_.saw(figures.loss_sum / figures.samples);
  if (!loss_watch_.leaps()) return;
  const bool rounds = engine_.local_rounds() != nullptr || engine_.server_rounds() != nullptr;
  throw Divergence(figures.step, figures.step - LossWatch::kWindow * (trainer_.steps_done() - steps_before_),
                   fmt::format("step {}: the loss leaps: {:.5g} on average over the last {} {}, and {:.5g} at its best",
                               figures.step, loss_watch_.mean(), LossWatch::kWindow, rounds ? "rounds" : "steps",
                               loss_watch_.best()));
}

/// Collective. Rank 0 alone has the history. If the run now compares by another metric, the best is that of the new
/// metric.
void Run::count_earlier_validations(const io::TrainingRecord& from) {
  const auto losses = io::numbers_by_step(from.metrics, "validation", "loss");
  double best = std::numeric_limits<double>::quiet_NaN(), best_loss = best;
  for (const auto& [step, metric] : io::numbers_by_step(from.metrics, "validation", workload_.task->best_key())) {
    patience_.saw(metric);
    const auto found = losses.find(step);
    const double loss = found != losses.end() ? found->second : std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(best) || better(metric, best)) {
      best = metric;
      best_loss = loss;
    } else if (metric == best && !(best_loss <= loss)) {
      best_loss = loss;
    }
  }
  if (communicator_.rank() == 0 && from.step > 0 && compares_by(from, validation_.best_by)) {
    if (best != from.best_metric) best_loss = best_loss_;
    best = from.best_metric;
  }
  std::array<double, 4> counted{patience_.best(), static_cast<double>(patience_.in_vain()), best, best_loss};
  communicator_.broadcast(std::as_writable_bytes(std::span(counted)), 0);
  communicator_.wait();
  patience_.go_on(counted[0], static_cast<std::int64_t>(counted[1]));
  best_metric_ = counted[2];
  best_loss_ = counted[3];
}

const char* Run::how_it_ended() const {
  return stopped_                              ? "stopped"
         : target_reached_                     ? "target reached"
         : patience_.is_over() && !last_step() ? "no improvement"
                                               : "done";
}

/// The reason why a resumed run has no step to make; empty: it has.
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
        *validation_.target_metric, best_metric_);
  }
  if (patience_.is_over()) {
    return fmt::format(
        "the last {} were not better than {:.6g}: nothing is left to do (more --patience goes on from here)",
        counted(patience_.in_vain(), "validation"), patience_.best());
  }
  return "";
}

/// Collective if histograms are due.
void Run::report(StepFigures figures) {
  const bool with_histograms = due({.steps = reports_.histograms_every});
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
  std::vector<float> gradients(training_.parameters.updated_elements());
  training_.parameters.download_gradients(gradients);
  for (const model::Parameter& parameter : workload_.network->parameters().all()) {
    reporter_.histogram("weights/" + parameter.name, trainer_.steps_done(),
                        std::span<const float>(parameters).subspan(parameter.offset, parameter.count));
    if (parameter.frozen) continue;
    reporter_.histogram("gradients/" + parameter.name, trainer_.steps_done(),
                        std::span<const float>(gradients).subspan(parameter.offset, parameter.count));
  }
}

void Run::evaluate_now() {
  if (!workload_.validation || evaluated_at_ == trainer_.steps_done()) return;
  communicator_.note_activity("validation", trainer_.steps_done());
  StopWatch watch;
  if (validation_.average) engine_.bring_together(training_.parameters.weight_elements(model::Weights::average));
  Score evaluation;
  together([&] {
    evaluation = evaluate(training_.model, *workload_.validation, communicator_,
                          validation_.average ? model::Weights::average : model::Weights::current, validation_.batch,
                          *workload_.task);
  });
  evaluated_at_ = trainer_.steps_done();
  const double seconds = watch.seconds();
  interrupted_seconds_ += seconds;
  wall_time_.took_validation(seconds);
  if (!std::isfinite(evaluation.loss)) {  // the same on all ranks
    throw Divergence(
        evaluated_at_, evaluated_at_ - 1,
        fmt::format("step {}: the validation loss is not finite: the weights have grown too large, or {} holds numbers "
                    "that are not finite. No checkpoint was written of them; the one before is intact. A smaller "
                    "--learning-rate, --warmup-steps or --clip-norm usually helps",
                    evaluated_at_, workload_.paths.validation.string()));
  }
  if (std::isnan(evaluation.best)) {  // the same on all ranks
    throw comm::AgreedError(fmt::format(
        "--best-by {}: {} is not defined where all samples are of one class, as in {}: give another metric or other "
        "validation data",
        word_of(validation_.best_by), workload_.task->metric_words(), workload_.paths.validation.string()));
  }
  const bool is_first = std::isnan(best_metric_);
  const bool is_equal = !is_first && !better(best_metric_, evaluation.best);
  if (is_first || better(evaluation.best, best_metric_) || (is_equal && evaluation.loss < best_loss_)) {
    best_metric_ = evaluation.best;
    best_loss_ = evaluation.loss;
    best_at_ = evaluated_at_;
  }
  target_reached_ = reached_target(evaluation.best);
  patience_.saw(evaluation.best);
  last_evaluation_ = evaluation;
  checkpointer_.validated(evaluated_at_, evaluation.best, evaluation.loss);
  on_rank0([&] {
    reporter_.evaluation(evaluated_at_, epochs_done(), evaluation, validation_.average,
                         {.seconds = seconds, .training = time().total});
  });
}

/// Rank 0's record is complete; others have only the step.
io::TrainingRecord Run::record() const {
  io::TrainingRecord record;
  if (communicator_.rank() == 0) {
    const bool epoch_over = trainer_.next_position() >= workload_.work.epoch_samples;
    record = identity_;
    record.epoch = trainer_.epoch() + (epoch_over ? 1 : 0);
    record.position = epoch_over ? 0 : trainer_.next_position();
    record.best_metric = best_metric_;
    record.validated_step = std::max(evaluated_at_, validated_before_);
    record.metrics = reporter_.history();
  }
  record.step = trainer_.steps_done();
  return record;
}

/// Each shard is checked by one rank. Throws io::FileError if one has changed since it was opened.
void Run::check_own_shards() {
  communicator_.note_activity("looking whether the data have changed", trainer_.steps_done());
  for (io::Dataset* data : {workload_.training.get(), workload_.validation.get()}) {
    if (data != nullptr) data->check_unchanged(communicator_.rank(), communicator_.size());
  }
}

/// Collective. Prevents checkpoints of weights that have seen other data than the run began with.
void Run::require_unchanged_data() {
  together([&] { comm::all_succeed(communicator_, [&] { check_own_shards(); }); });
}

/// Copies the state; the next steps change the original while rank 0 writes the copy.
void Run::save_now() {
  told_to_save_ = false;
  if (saved_at_ == trainer_.steps_done()) return;
  require_unchanged_data();
  communicator_.note_activity("checkpoint", trainer_.steps_done());
  await_checkpoint();
  const StopWatch watch;
  together([&] { checkpointer_.take(); });
  keep_error([&] { checkpointer_.write(record()); });
  // The other ranks wait for rank 0 here, where a long operation is excused, and not in a sum between devices.
  if (waits_on_devices_) {
    communicator_.barrier();
    communicator_.wait();
  }
  engine_.forget_residuals();
  since_saved_.lap();
  saved_at_ = trainer_.steps_done();
  interrupted_seconds_ += watch.seconds();
}

/// There is one copy: the next checkpoint, and the end of the run, wait for the previous checkpoint.
void Run::await_checkpoint() {
  const StopWatch watch;
  checkpointer_.wait();
  interrupted_seconds_ += watch.seconds();
  report_checkpoint();
}

/// The next step's vote reports a failed write.
void Run::report_checkpoint() {
  checkpointer_.advance();
  on_rank0([&] {
    const std::optional<WrittenCheckpoint> written = checkpointer_.poll();
    if (!written) return;
    saved_ = written->file;
    best_saved_ = written->best;
    reporter_.checkpoint(*written);
    wall_time_.took_checkpoint(written->seconds);
  });
}

/// Advice if one rank would have made the same steps sooner; "": it would not, or that is unknown.
std::string Run::faster_alone(const TimeSplit& split) const {
  const int world = communicator_.size();
  const std::int64_t steps = trainer_.steps_done() - first_step_;
  if (engine_.server_rounds() != nullptr) return "";
  return advise_one_rank(split, world, steps);
}

/// A warning if the network is no better than a predictor that ignores the sample; "": it is better.
std::string Run::beaten_by_constant() const {
  const std::optional<Score>& reached = workload_.constant_score;
  if (!reached || !last_evaluation_) return "";
  const ConstantPredictor& constant = workload_.constant;
  const Task& task = *workload_.task;
  const std::string text = beaten_by(constant, last_evaluation_->metric, *reached, task);
  if (text.empty()) return "";
  const bool comparable = std::string_view(task.best_key()) == task.metric_key();
  if (comparable && beaten_by(constant, best_metric_, *reached, task).empty()) {
    return fmt::format("validation {}; the best validation{} was better ({})", text,
                       best_at_ < 0 ? "" : fmt::format(", at step {},", best_at_), task.format_metric(best_metric_));
  }
  return fmt::format(
      "validation {}: the network has learnt nothing that helps there. Look at --learning-rate, "
      "--normalize, the amount of training and the labels",
      text);
}

/// The results of the run: metric, checkpoint, time.
std::string Run::summary() const {
  std::string text;
  if (last_evaluation_) {
    text += fmt::format("; validation{} {}",
                        evaluated_at_ == trainer_.steps_done() ? "" : fmt::format(" at step {}", evaluated_at_),
                        workload_.task->format_evaluation(*last_evaluation_));
    if (better(best_metric_, last_evaluation_->best)) text += fmt::format(", best metric {:.6g}", best_metric_);
  }
  if (!saved_.empty()) text += fmt::format("; checkpoint {}", saved_.string());
  if (!best_saved_.empty() && best_saved_ != saved_)
    text += fmt::format(", the best {}", best_saved_.filename().string());
  return text;
}

/// The algorithm. A step is: next batch, forward, backward (reducing as gradients appear), update (Trainer::step).
void Run::make_steps(StopSignals& signals) {
  while (!last_step() && !finished() && !stopped_ && !stops_here()) {
    StopWatch watch;
    const Trainer::Result step = make_step(signals);
    report(step.figures);
    watch_loss(step.figures);
    report_checkpoint();
    stopped_ = step.stop_requests > 0 && !last_step();  // after the last step there is nothing left to stop
    const std::int64_t made = engine_.server_rounds() != nullptr ? trainer_.steps_done() - steps_before_ : 1;
    wall_time_.took_step(watch.seconds() / static_cast<double>(std::max<std::int64_t>(1, made)));
    if (trainer_.next_position() >= workload_.work.epoch_samples) keep_error([this] { check_own_shards(); });
    // A stop must be quick: the checkpoint comes first, the validation when the run is resumed.
    if (due(workload_.work.evaluate_every) && !stopped_) evaluate_now();
    const bool wanted =
        due(workload_.work.checkpoint_every) || step.save_due || step.save_requests > 0 || brings_best();
    if (wanted && !last_step()) save_now();  // the checkpoint of the last step follows the last validation
    if (step.save_requests > 0) requests_.answered();
  }
  on_rank0([&] { reporter_.remaining(last_figures_, time(), [this] { return training_.optimizer.l2_loss(); }); });
}

/// One file for each process that has trained in this folder, named after the steps done before: a replay begins there.
void Run::record_arrivals(int server, const std::string& bytes) {
  const std::filesystem::path path = arrivals_of(folder_->path() / fmt::format("arrivals-{}", first_step_), server);
  const io::IoDeadline::Operation writing(io_deadline_, io::IoDeadline::Kind::writing, path);
  const int start = records_.insert(server).second ? O_TRUNC : 0;
  io::append_whole(io::open_own_file(path, O_WRONLY | O_CREAT | O_APPEND | start, "write"), bytes, path);
}

/// The next step after which all ranks act together.
std::int64_t Run::next_due() const {
  std::int64_t next = stop_step();
  for (const Interval& every :
       {workload_.work.evaluate_every, workload_.work.checkpoint_every, Interval{.steps = reports_.histograms_every}}) {
    if (every.steps > 0) next = std::min(next, every.next(trainer_.steps_done()));
  }
  return next;
}

/// A step, or a round of several.
Trainer::Result Run::make_step(StopSignals& signals) {
  steps_before_ = trainer_.steps_done();
  if (ServerRounds* const servers = engine_.server_rounds()) {
    return servers->round(
        trainer_, next_due(),
        {.ask = [&] { return next_request(signals); },
         .report =
             [&](StepFigures figures) {
               on_rank0([&] {
                 figures.epoch = workload_.work.epochs_after(figures.step);
                 reporter_.step(figures, time(), [this] { return training_.optimizer.l2_loss(); });
               });
               report_checkpoint();  // no communication, because one rank writes
             },
         .warn = [&](const std::string& text) { console_.warn(text); },
         .record = [&](int server, const std::string& bytes) { on_rank0([&] { record_arrivals(server, bytes); }); },
         .go_on_at = go_on_at_});
  }
  LocalRounds* const rounds = engine_.local_rounds();
  if (rounds == nullptr) return trainer_.step(next_request(signals));
  return rounds->round(trainer_, [&] { return next_request(signals); });
}

int Run::train(StopSignals& signals) {
  running_.lap();
  if (owes_validation_) {
    evaluate_now();
    // This step's checkpoint lacks the validation's result: a run resumed from it would validate again.
    if (std::exchange(saved_at_, -1) == trainer_.steps_done()) save_now();
  }
  const std::string idle = nothing_left();
  if (idle.empty()) {
    if (begins_launch_) on_rank0([&] { reporter_.start(trainer_.steps_done(), epochs_done()); });
    make_steps(signals);
    const TimeSplit split = time();
    stopped_ = stopped_ && !finished();
    if (!stopped_) evaluate_now();
    stopped_ = stopped_ || (stops_here() && !finished());
    on_rank0([&] {
      if (const std::string table = reporter_.summary(); !table.empty()) console_.info(table);
      if (const std::string warning = beaten_by_constant(); !warning.empty()) console_.warn(warning);
      console_.info(fmt::format("time in steps: {}", format_split(split)));
      if (const std::string advice = faster_alone(split); !advice.empty()) console_.info(advice);
    });
    if (ServerRounds* const servers = engine_.server_rounds()) {
      console_.info(servers->report([&](const std::string& text) { console_.warn(text); }));
    }
  }
  save_now();
  await_checkpoint();
  signals.ignore();  // nothing is left to stop, and the exit code is to report the result
  if (idle.empty()) {
    on_rank0([&] { reporter_.end(trainer_.steps_done(), how_it_ended()); });
  }
  together([&] {
    comm::all_succeed(communicator_, [&] {
      if (!error_.empty()) throw std::runtime_error(error_);
    });
  });
  console_.info(idle.empty() || stopped_ ? ending(signals) : idle);
  return stopped_ ? kExitStoppedEarly : kExitDone;
}

/// This rank's requests for the next step.
Trainer::Request Run::next_request(StopSignals& signals) {
  const bool time_is_up =
      wall_time_.is_up({.validation = will_be_due(workload_.work.evaluate_every),
                        .checkpoint = will_be_due(workload_.work.checkpoint_every) || checkpointer_.under_way() ||
                                      (saves_best() && will_be_due(workload_.work.evaluate_every))});
  requests_.came(signals.take_checkpoint_requests(), since_saved_.seconds());
  return {.stop = time_is_up || signals.stop_requested(),
          .save = requests_.wanted(),
          .save_due = checkpoint_is_due(),
          .error = error_};
}

/// By the clock or the folder, which are rank 0's. A request stays until a checkpoint answers it: a round may have many
/// steps in which this is asked.
bool Run::checkpoint_is_due() {
  constexpr double kSecondsBetweenLooks = 1;
  if (!folder_) return false;
  if (since_looked_.seconds() >= kSecondsBetweenLooks) {
    since_looked_.lap();
    told_to_save_ = folder_->take_request("checkpoint-now") || told_to_save_;
  }
  return told_to_save_ ||
         (run_.checkpoint_every.seconds > 0 && since_saved_.seconds() >= run_.checkpoint_every.seconds);
}

/// The last line of a run that made steps.
std::string Run::ending(const StopSignals& signals) const {
  const double seconds = running_.seconds();
  const std::string taken = seconds < 60 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
  if (!stopped_) {
    const std::string in_vain = patience_.is_over() && !target_reached_ && !last_step()
                                    ? fmt::format(" in {} validations", patience_.in_vain())
                                    : "";
    return fmt::format("{}{} at step {} after {}{}", how_it_ended(), in_vain, trainer_.steps_done(), taken, summary());
  }
  const std::string why = !wall_time_.reason().empty() ? fmt::format(": {};", wall_time_.reason())
                          : signals.stop_requested()   ? fmt::format(" on request ({})", signals.name())
                          : stops_here()               ? std::string(" (--stop-at)")
                                                       : " on request";
  return fmt::format("stopped at step {}{} after {}{}; continue with --resume --run {} (exit code {})",
                     trainer_.steps_done(), why, taken, summary(), run_.folder.string(), kExitStoppedEarly);
}

}  // namespace lockstep::app
