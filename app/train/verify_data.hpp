/// \file
/// Checksums of the data, before a job is built on it.
#pragma once

#include <cstdint>

#include "app/options/train_options.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Whether data of so many bytes is verified.
bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept;

/// Collective: recomputes the checksums of the shards, each by one rank, as --verify says.
void verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted, const Workload& workload);

}  // namespace lockstep::app
