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

/// Collective. Rank 0 reports hosts, devices and the plan, and the warnings of all ranks about their data. Returns on
/// rank 0 the advice to use a faster precision; "" on other ranks or if there is none.
std::string announce(comm::Communicator& communicator, Console& console, const Plan& plan);

/// Reports the time limit of the job. The result reserves time for the last checkpoint. `launched` has run since `time`
/// was found.
WallTime announce_time(const JobTime& time, const StopWatch& launched, Console& console, const Plan& plan);

/// Collective. Returns true on all ranks if any rank has received a stop signal. Rank 0 then reports that the job stops
/// before its first step and that there is nothing to save.
bool stopped_before_start(comm::Communicator& communicator, Console& console, StopSignals& signals);

}  // namespace lockstep::app
