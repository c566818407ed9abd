/// \file
/// Runs as one HTML file: figures, charts and their values, events, plan and options. It needs no network and no other
/// file, follows the viewer's choice of light or dark, and can be read without its script, with a keyboard and with a
/// screen reader.
#pragma once

#include <string>
#include <vector>

#include "app/runs/run_history.hpp"

namespace lockstep::app {

/// Makes the page. `runs` must not be empty.
std::string page_of(const std::vector<RunHistory>& runs, Progress along = Progress::automatic);

}  // namespace lockstep::app
