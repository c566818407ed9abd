/// \file
/// `lockstep info`: what a shard folder, an HDF5 data file, a checkpoint or a run folder holds.
#pragma once

#include <filesystem>

#include "app/console.hpp"
#include "app/options.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

/// One process; throws UsageError in a larger world. Returns the exit code: 0, or 1 when something is damaged. Throws
/// io::FileError for what cannot be read at all.
int run_info(comm::MpiSession& session, const InfoOptions& options);

/// The parts of run_info. Each returns true when all is well.
bool describe_dataset(Console& console, const std::filesystem::path& path, bool verify);
bool describe_checkpoint(Console& console, const std::filesystem::path& file);
bool describe_run(Console& console, const std::filesystem::path& folder, bool verify);

}  // namespace lockstep::app
