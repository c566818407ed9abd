/// \file
/// What a job is going to do, as text for rank 0: --dry-run ends after it.
#pragma once

#include <span>
#include <string>

#include "app/options.hpp"
#include "app/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Layers, parameters, memory per rank, FLOPs per step, buckets, the amount of work.
std::string format_plan(const Workload& workload, const TrainOptions& options, const comm::Communicator& communicator,
                        std::span<const comm::Slice> buckets);

/// 1234567 -> "1,234,567".
std::string with_commas(std::int64_t value);
/// 1536 -> "1.5 KiB".
std::string format_bytes(double bytes);
/// 1.5e9 -> "1.50 GFLOP".
std::string format_flops(double flops);
/// 3725 -> "1:02:05", 65 -> "1:05".
std::string format_duration(double seconds);

}  // namespace lockstep::app
