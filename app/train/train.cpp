#include "app/train/train.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/engine/engine.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/trainer.hpp"
#include "app/options/options.hpp"
#include "app/plan/fingerprint.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/result_file.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/announcement.hpp"
#include "app/train/resume.hpp"
#include "app/train/run.hpp"
#include "app/train/verify_data.hpp"
#include "app/train/wall_time.hpp"
#include "comm/agreement.hpp"
#include "io/datasets/prefetcher.hpp"
#include "io/exchange/safetensors.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

namespace {

/// Collective, on resume: rank 0 owns the folder from here on, and nobody else writes there. Who did a moment ago may
/// have gone on beyond the checkpoint that was read: `origin` is the newest one after this.
std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, Origin& origin,
                                         const Plan& plan, io::IoDeadline& deadline) {
  std::optional<io::RunFolder> folder;
  if (plan.settings.run.resume.from != Resume::From::newest) return folder;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    folder.emplace(plan.settings.run.folder, io::RunFolder::Open::resume, false, &deadline);
  });
  if (found_newer(communicator, console, origin)) check_continues(communicator, console, *origin.record(), plan);
  return folder;
}

/// Collective. The state that training begins with. Returns the record that belongs to it.
io::TrainingRecord restore_or_initialize(comm::Communicator& communicator, Console& console, Engine& engine,
                                         Origin& origin, const Plan& plan) {
  model::Training& training = engine.training();
  if (!origin.checkpoint) {
    training.parameters.initialize(plan.workload.seed);
    const StartOptions& start = plan.settings.start;
    if (start.from.empty()) return {};
    CheckpointOnRank0 source(communicator, {.path = start.from}, origin.deadline, CheckpointOnRank0::Accept::weights);
    for (const std::string& warning : source.warnings()) console.warn(warning);
    const std::string table = source.initialize(training.parameters, start.reinitialize);
    const std::string step =
        io::is_safetensors_name(source.file()) ? "" : fmt::format(" (step {})", source.record().step);
    console.info(fmt::format("{}weights of {}{}\n{}", source.validated_average() ? "averaged " : "",
                             source.file().string(), step, table));
    return {};
  }
  origin.checkpoint->restore_recurrent_state(
      training.model.recurrent_state(),
      share_of(plan.workload.work, communicator.rank(), communicator.size()).sequences);
  origin.checkpoint->restore(training.parameters, engine.carried());
  return *origin.record();
}

/// Says how long the job may take, and keeps time for the last checkpoint.
WallTime wall_time(const JobTime& time, const StopWatch& launched, Console& console, const Plan& plan) {
  if (!time.problem.empty()) console.warn(time.problem);
  if (const std::string line = describe_job(time); !line.empty()) console.info(line);
  if (!time.left) return {};
  const Workload& workload = plan.workload;
  const double validation_samples = workload.validation ? static_cast<double>(workload.validation->info().samples) : 0;
  return WallTime(*time.left - launched.seconds(), checkpoint_estimate(plan.memory.snapshot),
                  std::ceil(validation_samples / static_cast<double>(workload.work.global_batch)));
}

}  // namespace

int run_train(comm::MpiSession& session, const TrainOptions& given, StopSignals& signals) {
  const auto communicator = comm::make_communicator(session, communicator_options(given.execution));
  io::IoDeadline io_deadline = watch_files(session, *communicator, given.execution.io_deadline);
  Console console(communicator->rank() == 0);
  if (!communicator->transport_note().empty()) console.warn(communicator->transport_note());
  console.set_progress(given.reports.progress);
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  const StopWatch launched;
  const JobTime job_time = communicator->rank() == 0 ? find_job_time(given.run.time_limit) : JobTime{};

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

  Engine engine(session, *communicator, plan);
  console.info(engine.description());
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  std::optional<io::RunFolder> folder = take_folder(*communicator, console, origin, plan, io_deadline);
  const io::TrainingRecord from = restore_or_initialize(*communicator, console, engine, origin, plan);
  if (engine.local_rounds() != nullptr) engine.local_rounds()->begin();
  const bool continues = origin.checkpoint && is_of_run(origin.checkpoint->file(), settings.run.folder);
  origin.checkpoint.reset();

  io::PrefetcherOptions input = reading(workload, communicator->rank(), communicator->size());
  input.first_epoch = from.epoch;
  input.first_position = from.position;
  input.memory = engine.backend().host_memory();
  io::Prefetcher prefetcher(*workload.training, input);
  BatchFeed feed(prefetcher, engine.stepping(),
                 feed_options(plan, engine.backend(), communicator->rank(), communicator->size()));
  const RankShare share = share_of(workload.work, communicator->rank(), communicator->size());
  Trainer trainer(engine.parts(), plan.schedule, share.micro_steps, [&] { return feed.next(); });
  trainer.start_at(from.step, from.epoch, from.position);

  Run run(plan, *communicator, console, engine, trainer, wall_time(job_time, launched, console, plan));
  // What goes wrong from here on is said before the reader is waited for, which may be stuck.
  return session.conclude([&] {
    run.open_folder(std::move(folder), continues, from, io_deadline);
    return run.train(signals);
  });
}

}  // namespace lockstep::app
