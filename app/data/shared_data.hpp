/// \file
/// Packed data that the ranks of a job open together. io/datasets/shared_shards.hpp gives the reason.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "comm/communicator.hpp"
#include "io/datasets/shared_shards.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Shared shards by folder.
using SharedData = std::map<std::filesystem::path, std::shared_ptr<io::SharedShards>>;

/// Collective. Every rank gives the same number of folders; "": none. Skips data that are not packed or missing, so
/// that the code that opens them reports errors. Returns nothing in a world of one. `deadline` must outlive the data.
/// Throws comm::ConsensusError.
SharedData open_together(comm::Communicator& communicator, std::span<const std::filesystem::path> folders,
                         io::IoDeadline* deadline);

}  // namespace lockstep::app
