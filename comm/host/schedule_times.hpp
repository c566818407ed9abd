/// \file
/// How long sums between hosts take by each schedule, on the network and the cores that are there.
#pragma once

#include <functional>
#include <vector>

#include "comm/all_reduce_limits.hpp"
#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective, when nothing is under way: one or two seconds at most, on slow networks a few sums more. Sums of float32
/// from 1 KiB up, each twice the one before, until the ring is ahead for good; `take` makes the next sums take a
/// schedule. The schedules are timed in turns. One entry for each size, ascending, the same on every rank: medians of
/// the ranks' mean. Throws PeerError.
std::vector<ScheduleSeconds> time_schedules(Communicator& communicator,
                                            const std::function<void(AllReduceSchedule)>& take);

}  // namespace lockstep::comm
