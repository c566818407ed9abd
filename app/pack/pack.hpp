/// \file
/// `lockstep pack`: converts raw data to a folder of HDF5 shards.
#pragma once

#include "app/engine/signals.hpp"
#include "app/pack/pack_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Runs in one process (session nullptr), or on all ranks of a session; then each rank writes a part of the shards.
/// Returns the exit code: 0, or 1 if a signal stopped it (then no files remain). Uses `signals` from its first write
/// on. Throws UsageError and io::FileError; with several ranks, comm::ConsensusError.
int run_pack(comm::MpiSession* session, const PackOptions& options, StopSignals& signals);

}  // namespace lockstep::app
