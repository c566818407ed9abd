/// \file
/// `lockstep report` and `lockstep plot`: pictures of runs. One process each, without MPI.
#pragma once

#include "app/options/options.hpp"

namespace lockstep::app {

/// A page of one or several runs. The exit code. Throws io::FileError.
int run_report(const ReportRunsOptions& options);
/// The pictures of that page in one SVG file.
int run_plot(const PlotOptions& options);

}  // namespace lockstep::app
