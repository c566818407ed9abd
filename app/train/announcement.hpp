/// \file
/// What the user is told before the first step.
#pragma once

#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective: rank 0 tells of hosts, devices and the plan, and warns of what any rank sees in its data.
void announce(comm::Communicator& communicator, Console& console, const Plan& plan);

}  // namespace lockstep::app
