/// \file
/// `lockstep report` and `lockstep plot`: charts of runs. Each runs in one process, without MPI.
#pragma once

#include "app/runs/report_runs_options.hpp"

namespace lockstep::app {

/// Writes a page about one or several runs. Returns the exit code. Throws io::FileError.
int run_report(const ReportRunsOptions& options);
/// Writes the charts of that page to one SVG file.
int run_plot(const PlotOptions& options);

}  // namespace lockstep::app
