/// \file
/// `lockstep pack`: raw data into a folder of HDF5 shards.
#pragma once

#include "app/engine/signals.hpp"
#include "app/options/options.hpp"

namespace lockstep::app {

/// Runs as one process. Returns the exit code: 0 done, 1 stopped by a signal (nothing is left behind). Notes `signals`
/// from the first byte that it writes. Throws io::FileError.
int run_pack(const PackOptions& options, StopSignals& signals);

}  // namespace lockstep::app
