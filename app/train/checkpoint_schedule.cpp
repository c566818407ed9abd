#include "app/train/checkpoint_schedule.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/train/resume.hpp"
#include "comm/consensus.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

CheckpointSchedule::CheckpointSchedule(const Plan& plan, comm::Communicator& communicator, Engine& engine,
                                       PendingError& error, std::function<void(const WrittenCheckpoint&)> written)
    : options_(plan.settings.run),
      workload_(plan.workload),
      work_(plan.workload.work),
      communicator_(communicator),
      engine_(engine),
      error_(error),
      written_(std::move(written)),
      checkpointer_(engine.checkpointer_context(work_, plan.checkpoint_writers)) {}

void CheckpointSchedule::open(std::shared_ptr<io::RunFolder> folder, bool continues, const io::TrainingRecord& from,
                              io::IoDeadline& deadline) {
  if (continues) saved_step_ = from.step;
  folder_ = std::move(folder);
  if (!folder_) return checkpointer_.open({.folder = options_.folder / "checkpoints"}, &deadline);
  checkpointer_.open(
      {.folder = folder_->checkpoints(),
       .keep = options_.keep,
       .goes_on_from = saved_step_,
       .keep_best = options_.keep_best,
       .is_better = [task = *workload_.task](double a, double b) { return task.is_better(a, b); },
       .metrics = counted_validations(from.metrics, workload_.task->best_key()),
       .losses = counted_validations(from.metrics, "loss"),
       .lies_behind = [from](std::int64_t step, const std::string& its) { return lies_behind(from, step, its); },
       .still_owner = [folder = folder_] { folder->still_owner(); }},
      &deadline);
}

void CheckpointSchedule::ask(Trainer::Request& request, std::int64_t signals) {
  requests_.came(signals, since_saved_.seconds());
  request.save = requests_.wanted();
  request.save_due = is_due_on_rank0();
}

/// True if the clock or a file in the folder requires a checkpoint; false on other ranks, which have no folder. The
/// result stays true until a checkpoint is made, because a round calls this in each of its steps.
bool CheckpointSchedule::is_due_on_rank0() {
  constexpr double kSecondsBetweenLooks = 1;
  if (!folder_) return false;
  if (since_looked_.seconds() >= kSecondsBetweenLooks) {
    since_looked_.lap();
    told_to_save_ = folder_->take_request("checkpoint-now") || told_to_save_;
  }
  const double every = options_.checkpoint_every.seconds;
  return told_to_save_ || (every > 0 && since_saved_.seconds() >= every);
}

void CheckpointSchedule::check_own_shards(std::int64_t step) const {
  communicator_.note_activity("looking whether the data have changed", step);
  for (io::Dataset* data : {workload_.training.get(), workload_.validation.get()}) {
    if (data != nullptr) data->check_unchanged(communicator_.rank(), communicator_.size());
  }
}

void CheckpointSchedule::save(const io::TrainingRecord& record) {
  told_to_save_ = false;
  if (saved_step_ == record.step) return;
  engine_.rounds().together([&] { comm::all_succeed(communicator_, [&] { check_own_shards(record.step); }); });
  communicator_.note_activity("checkpoint", record.step);
  wait();
  const StopWatch watch;
  engine_.rounds().together([this] { checkpointer_.take(); });
  error_.keep([&] { checkpointer_.write(record); });
  // With GPUs, the ranks wait here for rank 0. The barrier tolerates a long operation; a sum between devices does not.
  if (!engine_.backend().is_host()) {
    communicator_.barrier();
    communicator_.wait();
  }
  engine_.forget_residuals();
  since_saved_.lap();
  saved_step_ = record.step;
  seconds_ += watch.seconds();
}

void CheckpointSchedule::save_again(const io::TrainingRecord& record) {
  if (std::exchange(saved_step_, -1) == record.step) save(record);
}

/// There is only one copy of the state, so the next checkpoint and the end of the run wait for the previous checkpoint.
void CheckpointSchedule::wait() {
  const StopWatch watch;
  checkpointer_.wait();
  seconds_ += watch.seconds();
  poll();
}

void CheckpointSchedule::poll() {
  checkpointer_.advance();
  error_.keep_on_rank0([this] {
    const std::optional<WrittenCheckpoint> written = checkpointer_.poll();
    if (!written) return;
    newest_ = written->file;
    best_ = written->best;
    written_(*written);
  });
}

std::string CheckpointSchedule::results() const {
  std::string text;
  if (!newest_.empty()) text += fmt::format("; checkpoint {}", newest_.string());
  if (!best_.empty() && best_ != newest_) text += fmt::format(", the best {}", best_.filename().string());
  return text;
}

}  // namespace lockstep::app
