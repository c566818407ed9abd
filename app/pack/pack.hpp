/// \file
/// `lockstep pack`: raw data into a folder of HDF5 shards.
#pragma once

#include "app/options/options.hpp"

namespace lockstep::app {

/// Runs as one process. Returns the exit code: 0 done, 1 stopped by a signal (nothing is left behind). Throws
/// io::FileError.
int run_pack(const PackOptions& options);

}  // namespace lockstep::app
