/// \file
/// `lockstep report` and `lockstep plot`: pictures of runs. One process each, without MPI.
#pragma once

#include "app/runs/report_runs_options.hpp"

namespace lockstep::app {

/// Writes a page of one or several runs. Returns the exit code. Throws io::FileError.
int run_report(const ReportRunsOptions& options);
/// Writes the pictures of that page to one SVG file.
int run_plot(const PlotOptions& options);

}  // namespace lockstep::app
