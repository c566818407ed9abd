/// \file
/// Checksums of the data, before a job is built on it.
#pragma once

#include <cstdint>
#include <span>

#include "app/options/train_options.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Whether data of so many bytes is verified.
bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept;

/// Collective: recomputes the checksums of the shards, each by one rank, as --verify says; says where it does not.
/// Data sets that are nullptr are left out. Returns the bytes of the verified shards, of all ranks.
std::uint64_t verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted,
                          std::span<const io::Dataset* const> data);

}  // namespace lockstep::app
