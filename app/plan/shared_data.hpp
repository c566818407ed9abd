/// \file
/// The ranks of a job open packed data together: io/datasets/shared_shards.hpp has why.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "comm/communicator.hpp"
#include "io/datasets/shared_shards.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// By their folders.
using SharedData = std::map<std::filesystem::path, std::shared_ptr<io::SharedShards>>;

/// Collective, as many folders on every rank; "": none. What is not packed, or not there, is left to who opens it, and
/// everything in a world of one. `deadline` outlives the data. Throws comm::AgreedError.
SharedData open_together(comm::Communicator& communicator, std::span<const std::filesystem::path> folders,
                         io::IoDeadline* deadline);

}  // namespace lockstep::app
