#include "app/train/stretches.hpp"

#include <cstdint>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "app/engine/micro_batches.hpp"
#include "app/engine/slowdown.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/workload.hpp"
#include "app/report/figures.hpp"
#include "comm/agreement.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

class Stretches::Stretch {
 public:
  explicit Stretch(const Stretches& of)
      : prefetcher_(*of.plan_.workload.training, input(of)),
        feed_(prefetcher_, of.engine_.stepping(),
              feed_options(of.plan_, of.engine_.backend(), of.communicator_.size())),
        schedule_(of.plan_.schedule.scaled(of.course_.rate_factor)),
        slowdown_(of.speed_),
        trainer_(of.engine_.parts(), schedule_,
                 share_of(of.plan_.workload.work, of.engine_.reads_as(), of.engine_.training_ranks()).micro_steps,
                 [this] {
                   slowdown_.pause(trainer_.time());
                   return feed_.next();
                 }) {
    trainer_.start_at(of.from_.step, of.from_.epoch, of.from_.position, of.course_.optimizer_since);
    run_.emplace(of.plan_, of.communicator_, of.console_, of.engine_, trainer_, of.time_left_,
                 [this](DataPlace place) { feed_.go_on_at(place); });
  }
  Run& run() { return *run_; }

 private:
  static io::PrefetcherOptions input(const Stretches& of) {
    io::PrefetcherOptions input = reading(of.plan_.workload, of.engine_.reads_as(), of.engine_.training_ranks());
    input.first_epoch = of.from_.epoch;
    input.first_position = of.from_.position;
    input.memory = of.engine_.backend().host_memory();
    return input;
  }

  io::Prefetcher prefetcher_;
  BatchFeed feed_;
  model::LearningRateSchedule schedule_;
  Slowdown slowdown_;
  Trainer trainer_;
  std::optional<Run> run_;
};

Stretches::Stretches(Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Origin& origin,
                     const WallTime& time_left, double speed)
    : plan_(plan),
      communicator_(communicator),
      console_(console),
      engine_(engine),
      origin_(origin),
      time_left_(time_left),
      speed_(speed),
      continues_(origin.checkpoint && is_of_run(origin.checkpoint->file(), plan.settings.run.folder)),
      going_on_(plan.settings.run.resume.from == Resume::From::newest && (continues_ || origin.takes_folder_over)) {
  begin();
}

Stretches::~Stretches() = default;

/// Collective.
void Stretches::begin() {
  new_optimizer_ = origin_.begins_optimizer(plan_);
  LocalRounds* const rounds = engine_.local_rounds();
  if (rounds != nullptr) rounds->start_at(origin_.checkpoint ? origin_.record()->step : 0);
  from_ = restore();
  if (rounds != nullptr) rounds->begin();
  const Course before = course_;
  course_ = course_of(from_.metrics);
  if (going_on_) look_for_roll_back();
  communicator_.broadcast(std::as_writable_bytes(std::span(&course_, 1)), 0);
  communicator_.wait();
  if (before.roll_backs > course_.roll_backs) {  // the checkpoint may be older than the roll-backs
    course_.roll_backs = before.roll_backs;
    course_.rate_factor = before.rate_factor;
  }
  if (new_optimizer_) course_.optimizer_since = from_.step;
  begin_at(plan_, standing_of(from_, course_.clock));
  new_batch_ = plan_.clock != course_.clock;
  origin_.checkpoint.reset();
  begin_servers();
  if (course_.rate_factor != 1) {
    console_.info(fmt::format("learning rate: {:.4g} times what the options say, after {}", course_.rate_factor,
                              counted(course_.roll_backs, "roll-back")));
  }
  stretch_ = std::make_unique<Stretch>(*this);
}

/// Rank 0: finds a roll-back after which the run was killed before its next checkpoint; only the metrics record it.
void Stretches::look_for_roll_back() {
  going_on_ = false;
  if (communicator_.rank() != 0) return;
  const std::filesystem::path metrics = plan_.settings.run.folder / "metrics.jsonl";
  const io::IoDeadline::Operation reading(origin_.deadline, io::IoDeadline::Kind::reading, metrics);
  const std::string lines = io::read_whole(metrics).value_or("");
  if (const auto found = roll_back_after(lines, from_.step)) {
    course_.roll_backs = found->course.roll_backs;
    course_.rate_factor = found->course.rate_factor;
    unrecorded_ = found;
  }
}

/// Collective.
void Stretches::begin_servers() {
  ServerRounds* const servers = engine_.server_rounds();
  if (servers == nullptr) return;
  servers->begin({.steps = from_.step, .rate_factor = course_.rate_factor, .optimizer_since = course_.optimizer_since});
  const std::int64_t end = servers->replay_ends(), total = plan_.workload.work.total_steps;
  if (end < 0 || end >= total) return;
  console_.warn(
      fmt::format("--replay {}: its record ends at step {}, and this run at step {}: in the steps after it "
                  "gradients count as they come",
                  plan_.replay.string(), with_commas(end), with_commas(total)));
}

/// Restores or initialises the state of training. Returns the record that belongs to it.
io::TrainingRecord Stretches::restore() {
  model::Training& training = engine_.training();
  if (!origin_.checkpoint) {
    training.parameters.initialize(plan_.workload.seed);
    const StartOptions& start = plan_.settings.start;
    if (start.from.empty()) return {};
    if (!origin_.weights) origin_.read_weights(communicator_, start);  // return to the beginning
    origin_.weights->initialize(training.parameters, start.reinitialize);
    origin_.weights.reset();
    return {};
  }
  origin_.checkpoint->restore_recurrent_state(training.model.recurrent_state(), engine_.sequences(plan_.workload.work));
  if (origin_.begins_optimizer(plan_)) {
    training.parameters.reset_optimizer_state();
    origin_.checkpoint->restore_without_optimizer(training.parameters);
  } else {
    origin_.checkpoint->restore(training.parameters, engine_.carried());
  }
  return *origin_.record();
}

/// Collective.
void Stretches::open_folder(std::optional<io::RunFolder> folder, bool continues) {
  stretch_->run().open_folder(std::move(folder), continues, from_, *origin_.deadline);
  if (new_optimizer_) stretch_->run().note(new_optimizer_record(from_.step, plan_.record.optimizer));
  if (new_batch_) stretch_->run().note(global_batch_record(plan_.workload.work.global_batch, plan_.clock));
  if (unrecorded_) {
    stretch_->run().note(roll_back_record(from_.step, unrecorded_->failed_step, unrecorded_->course));
    unrecorded_.reset();
  }
}

int Stretches::train(std::optional<io::RunFolder> folder, StopSignals& signals) {
  open_folder(std::move(folder), continues_);
  stretch_->run().begins_launch();
  for (;;) {
    try {
      return stretch_->run().train(signals);
    } catch (const Divergence& divergence) {
      if (plan_.settings.run.roll_back == 0) throw;
      go_back(divergence);
    }
  }
}

/// Collective.
void Stretches::go_back(const Divergence& divergence) {
  const RunOptions& options = plan_.settings.run;
  if (course_.roll_backs >= options.roll_back) {
    throw comm::AgreedError(
        fmt::format("{}. The run went back {} before, at last with {:.4g} times the learning rate, and --roll-back {} "
                    "allows no more",
                    divergence.what(), counted(course_.roll_backs, "time"), course_.rate_factor, options.roll_back));
  }
  std::optional<io::RunFolder> folder = stretch_->run().leave();
  return_to_checkpoint(communicator_, origin_, plan_, stretch_->run().record(), divergence.good_step());
  stretch_.reset();
  engine_.backend().forget_recordings();  // they know the memory of the stretch
  engine_.forget_residuals();             // they come from steps that no longer count
  // Also between the parameters, where no backward pass writes: a sum in blocks spreads there what is not finite.
  engine_.backend().fill_zero(engine_.training().parameters.gradients());
  ++course_.roll_backs;
  course_.rate_factor *= options.roll_back_factor;
  console_.warn(fmt::format("{}. Going back to {} with {:.4g} times the learning rate (roll-back {} of {})",
                            divergence.what(),
                            origin_.checkpoint ? origin_.checkpoint->file().string() : "the beginning",
                            course_.rate_factor, course_.roll_backs, options.roll_back));
  begin();
  open_folder(std::move(folder), true);
  stretch_->run().note(roll_back_record(from_.step, divergence.step(), course_));
}

}  // namespace lockstep::app
