#include "app/train/train.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "app/engine/engine.hpp"
#include "app/engine/file_watch.hpp"
#include "app/options/options.hpp"
#include "app/plan/fingerprint.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/verify_data.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/figures.hpp"
#include "app/report/result_file.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/announcement.hpp"
#include "app/train/course.hpp"
#include "app/train/resume.hpp"
#include "app/train/stretches.hpp"
#include "app/train/wall_time.hpp"
#include "comm/agreement.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

namespace {

/// Collective, on resume: rank 0 owns the folder from here on, and no other process writes there. The previous owner
/// may have continued beyond the checkpoint that was read: afterwards `origin` is the newest one.
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

/// Collective: rank 0 alone has the history.
model::ScheduleClock clock_of(comm::Communicator& communicator, const Origin& origin) {
  model::ScheduleClock clock;
  if (!origin.checkpoint) return clock;
  clock = course_of(origin.record()->metrics).clock;
  communicator.broadcast(std::as_writable_bytes(std::span(&clock, 1)), 0);
  communicator.wait();
  return clock;
}

/// Reports the time limit of the job, and reserves time for the last checkpoint.
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

TrainOptions read_train_command(const std::vector<std::string>& arguments) {
  return parse_train(arguments, [](const std::filesystem::path& checkpoint) {
    try {
      return io::stored_record(checkpoint).configuration;
    } catch (const io::FileError& error) {
      throw UsageError(fmt::format("--resume: {}", error.what()));
    }
  });
}

int run_train(comm::MpiSession& session, const TrainOptions& options, StopSignals& signals) {
  Console console(session.rank() == 0);
  // Reports an error in the steps before it waits for the reader, which may be stuck.
  return train(session, options, signals, {.console = console, .around_steps = [&](const std::function<int()>& steps) {
                                             return session.conclude(steps);
                                           }});
}

int train(comm::MpiSession& session, const TrainOptions& given, StopSignals& signals, const Training& training) {
  comm::SurvivorCommunicator* survivors = nullptr;
  const std::unique_ptr<comm::Communicator> communicator = [&]() -> std::unique_ptr<comm::Communicator> {
    if (!given.agree.uses_servers()) return comm::make_communicator(session, communicator_options(given.execution));
    auto all = std::make_unique<comm::SurvivorCommunicator>(session, communicator_options(given.execution));
    survivors = all.get();
    return all;
  }();
  io::IoDeadline io_deadline = watch_files(session, *communicator, given.execution.io_deadline);
  Console& console = training.console;
  const Console::Watch watched(console, io_deadline);
  if (!communicator->transport_note().empty()) console.warn(communicator->transport_note());
  console.set_progress(given.reports.progress);
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  const StopWatch launched;
  const JobTime job_time = communicator->rank() == 0 ? find_job_time(given.run.time_limit) : JobTime{};

  Origin origin = find_origin(*communicator, console, given.run, given.network.name, io_deadline);
  if (!origin.checkpoint && !given.start.from.empty()) {
    origin.read_weights(*communicator, given.start);
    for (const std::string& warning : origin.weights->warnings()) console.warn(warning);
  }
  Plan plan = make_plan(*communicator, given,
                        {.folder = origin.folder,
                         .record = origin.record(),
                         .weights = origin.weights ? &origin.weights->record() : nullptr,
                         .clock = clock_of(*communicator, origin),
                         .takes_folder_over = origin.takes_folder_over,
                         .deadline = &io_deadline});
  if (origin.checkpoint) check_continues(*communicator, console, *origin.record(), plan);
  comm::require_equal(*communicator, fingerprint_of(plan));
  announce(*communicator, console, plan);
  if (origin.weights) {
    console.info(origin.weights->beginnings(plan.workload.network->parameters(), plan.settings.start.reinitialize));
  }
  if (training.planned) training.planned(plan);
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

  Engine engine(session, *communicator, plan, survivors);
  console.info(engine.description());
  if (stopped_before_start(*communicator, console, signals)) return kExitStoppedEarly;
  signals.note();
  std::optional<io::RunFolder> folder = take_folder(*communicator, console, origin, plan, io_deadline);
  Stretches stretches(plan, *communicator, console, engine, origin, wall_time(job_time, launched, console, plan),
                      training.speed);
  return training.around_steps([&] { return stretches.train(std::move(folder), signals); });
}

}  // namespace lockstep::app
