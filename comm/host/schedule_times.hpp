/// \file
/// Measures sums between hosts by each schedule, on the present network and cores.
#pragma once

#include <functional>
#include <vector>

#include "comm/all_reduce_limits.hpp"
#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective, with nothing under way. Takes at most one or two seconds, on slow networks a few sums more. Times
/// float32 sums from 1 KiB up, each twice the preceding size, until the ring is clearly the fastest; `take` sets the
/// schedule of the next sums. The schedules alternate. Returns one entry per size, ascending, the same on every rank:
/// medians of the ranks' mean. Throws PeerError.
std::vector<ScheduleSeconds> time_schedules(Communicator& communicator,
                                            const std::function<void(AllReduceSchedule)>& take);

}  // namespace lockstep::comm
