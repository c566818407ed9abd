/// \file
/// Verifies the checksums of the data before training.
#pragma once

#include <cstdint>
#include <span>

#include "app/options/train_options.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// True if data of `bytes` bytes are verified: always or never as `wanted` says, automatically up to 4 GiB.
bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept;

/// Collective. Recomputes the checksums of the shards, each on one rank, as --verify requests. Logs a line if the data
/// are too large to be verified automatically. Skips datasets that are nullptr. Returns the size of all verified
/// shards, in bytes.
std::uint64_t verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted,
                          std::span<const io::Dataset* const> data);

}  // namespace lockstep::app
