/// \file
/// Verification of the data's checksums before training.
#pragma once

#include <cstdint>
#include <span>

#include "app/options/train_options.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// True if data of this size are verified.
bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept;

/// Collective: recomputes the checksums of the shards, each by one rank, as --verify requests; reports omissions.
/// Datasets that are nullptr are skipped. Returns the size of the verified shards of all ranks, in bytes.
std::uint64_t verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted,
                          std::span<const io::Dataset* const> data);

}  // namespace lockstep::app
