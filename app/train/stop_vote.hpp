/// \file
/// A run that is told to stop while it starts: nothing has been written yet, and the ranks leave together.
#pragma once

#include "app/engine/signals.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective: whether a stop signal has come to any rank, the same answer on all. If so rank 0 says what that means.
bool stopped_before_start(comm::Communicator& communicator, Console& console, const StopSignals& signals);

}  // namespace lockstep::app
