/// \file
/// `lockstep pack`: raw data into a folder of HDF5 shards.
#pragma once

#include "app/options.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

/// One process; throws UsageError in a larger world. Returns the exit code: 0 done, 1 stopped by a signal (nothing is
/// left behind). Throws io::FileError.
int run_pack(comm::MpiSession& session, const PackOptions& options);

}  // namespace lockstep::app
