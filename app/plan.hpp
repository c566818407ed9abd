/// \file
/// What a job is going to do, as text for rank 0: --dry-run ends after it.
#pragma once

#include <span>
#include <string>

#include "app/options.hpp"
#include "app/placement.hpp"
#include "app/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Layers, parameters, memory per rank, FLOPs per step, buckets, the amount of work.
std::string format_plan(const Workload& workload, const TrainOptions& options, const Place& place,
                        const comm::Communicator& communicator, std::span<const comm::Slice> buckets);

}  // namespace lockstep::app
