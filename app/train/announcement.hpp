/// \file
/// Messages to the user before the first step.
#pragma once

#include <string>

#include "app/engine/signals.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/wall_time.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective: rank 0 reports hosts, devices and the plan, and any rank's warnings about its data. Returns on rank 0
/// what the plan says about a faster precision; empty: nothing.
std::string announce(comm::Communicator& communicator, Console& console, const Plan& plan);

/// Reports the time limit of the job, and reserves time for the last checkpoint. `launched`: runs since `time` was
/// found.
WallTime announce_time(const JobTime& time, const StopWatch& launched, Console& console, const Plan& plan);

/// Collective: whether a stop signal has come to any rank, the same answer on all. If so rank 0 says what that means:
/// nothing has been written yet, and the ranks leave together.
bool stopped_before_start(comm::Communicator& communicator, Console& console, StopSignals& signals);

}  // namespace lockstep::app
