/// \file
/// The import command: weights of a safetensors file become a checkpoint.
#pragma once

#include "app/options/options.hpp"

namespace lockstep::app {

/// Returns the exit code. Throws UsageError, io::FileError.
int run_import(const ImportOptions& options);

}  // namespace lockstep::app
