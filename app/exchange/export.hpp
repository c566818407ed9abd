/// \file
/// The export command: converts a checkpoint's network for other programs.
#pragma once

#include "app/exchange/export_options.hpp"

namespace lockstep::app {

/// Returns the exit code. Throws UsageError, io::FileError.
int run_export(const ExportOptions& options);

}  // namespace lockstep::app
