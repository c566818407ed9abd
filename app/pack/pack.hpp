/// \file
/// `lockstep pack`: converts raw data to a folder of HDF5 shards.
#pragma once

#include "app/engine/signals.hpp"
#include "app/pack/pack_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Runs in one process (no session), or in all ranks of a session, each of which writes a part of the shards. Returns
/// the exit code: 0 done, 1 stopped by a signal (no files remain). Notes `signals` from the first byte that it writes.
/// Throws UsageError and io::FileError, with several ranks comm::ConsensusError.
int run_pack(comm::MpiSession* session, const PackOptions& options, StopSignals& signals);

}  // namespace lockstep::app
