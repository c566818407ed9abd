#include "app/train/announcement.hpp"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "app/options/train_options.hpp"
#include "app/plan/common_result.hpp"
#include "app/report/program_build.hpp"
#include "comm/survey/topology.hpp"
#include "model/bf16_unit.hpp"

namespace lockstep::app {

namespace {

/// Returns a sentence about the speed of bf16 on this CPU; "" if bf16 is not faster, on a GPU, or if the user has
/// chosen a precision.
std::string faster_precision(const Plan& plan) {
  if (plan.place.gpu || plan.settings.execution.precision) return "";
  const model::Bf16Choice choice = model::fastest_bf16_unit(model::measure_bf16());
  if (choice.unit == model::Bf16Unit::none) return "";
  return fmt::format("--precision bf16 would multiply {:.1f} times as fast as fp32 here, by {}", choice.gain,
                     model::describe(choice.unit));
}

}  // namespace

std::string announce(comm::Communicator& communicator, Console& console, const Plan& plan) {
  const Workload& workload = plan.workload;
  const ExecutionOptions& execution = plan.settings.execution;
  const std::vector<comm::RankPlace> topology =
      comm::gather_topology(communicator, device_kind(plan.place, execution), device_identity(plan.place));
  std::vector<std::string> own = workload.training->warnings();
  if (workload.validation) {
    const std::vector<std::string> more = workload.validation->warnings();
    own.insert(own.end(), more.begin(), more.end());
  }
  own.insert(own.end(), workload.warnings.begin(), workload.warnings.end());
  const std::vector<std::string> warnings = gather_said(communicator, join_lines(own));
  console.info(fmt::format("lockstep {}", program_version()));
  console.info(comm::format_topology(topology));
  if (!plan.place.note.empty()) console.info(plan.place.note);
  console.info(format_plan(plan, communicator));
  const std::string faster = communicator.rank() == 0 ? faster_precision(plan) : "";
  if (!faster.empty()) console.info(faster);
  for (const std::string& note : workload.notes) console.info(note);
  for (const comm::TopologyWarning& warning : comm::topology_warnings(topology, execution.threads)) {
    console.warn(comm::to_text(warning));
  }
  for (const std::string& warning : warnings) console.warn(warning);
  return faster;
}

WallTime announce_time(const JobTime& time, const StopWatch& launched, Console& console, const Plan& plan) {
  if (!time.problem.empty()) console.warn(time.problem);
  if (const std::string line = describe_job(time); !line.empty()) console.info(line);
  if (!time.left) return {};
  const Workload& workload = plan.workload;
  const double validation_samples = workload.validation ? static_cast<double>(workload.validation->info().samples) : 0;
  return WallTime(*time.left - launched.seconds(), checkpoint_estimate(plan.memory.snapshot),
                  std::ceil(validation_samples / static_cast<double>(workload.work.global_batch)));
}

bool stopped_before_start(comm::Communicator& communicator, Console& console, StopSignals& signals) {
  std::array<double, 1> asked{signals.stop_requested() ? 1.0 : 0.0};
  communicator.all_reduce(asked);
  communicator.wait();
  if (asked[0] == 0) return false;
  signals.note();  // the signal has been handled
  console.info(fmt::format(
      "stopped on request{} before the first step: there is nothing new to keep, and the same command starts "
      "again",
      signals.stop_requested() ? fmt::format(" ({})", signals.name()) : ""));
  return true;
}

}  // namespace lockstep::app
