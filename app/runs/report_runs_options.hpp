/// \file
/// The options of `lockstep report` and `lockstep plot`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/runs/progress.hpp"

namespace lockstep::app {

/// `lockstep report`.
struct ReportRunsOptions {
  std::vector<std::filesystem::path> runs;  ///< run folders, and folders that contain run folders
  Progress along = Progress::automatic;
  std::filesystem::path out = "report.html";
};

/// `lockstep plot`.
struct PlotOptions {
  std::vector<std::filesystem::path> runs;  ///< as in ReportRunsOptions
  Progress along = Progress::automatic;
  std::filesystem::path svg = "plot.svg";
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
ReportRunsOptions parse_report(const std::vector<std::string>& arguments);
PlotOptions parse_plot(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
