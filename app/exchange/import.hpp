/// \file
/// The import command: converts weights of a safetensors file to a checkpoint.
#pragma once

#include "app/exchange/import_options.hpp"

namespace lockstep::app {

/// Returns the exit code. Throws UsageError, io::FileError.
int run_import(const ImportOptions& options);

}  // namespace lockstep::app
