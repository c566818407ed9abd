/// \file
/// Runs beside each other: which is best, and in which options they differ.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/runs/run_history.hpp"

namespace lockstep::app {

/// An option that not all runs have alike: its value in each of them, "" where it has no effect.
struct DifferentOption {
  std::string name;
  std::vector<std::string> values;
};
std::vector<DifferentOption> differences_of(const std::vector<RunHistory>& runs);

/// Places in `runs`, the run with the best validation metric first; those without one are last, in their order. Runs
/// whose metrics differ are not compared: each follows the first of its kind.
std::vector<std::size_t> ranking_of(const std::vector<RunHistory>& runs);

/// "training", "done" …
std::string state_words(const RunSummary& summary);

/// The ranking as lines of text: place, run, best metric, its step, loss, time, state, and the options that differ.
std::string format_ranking(const std::vector<RunHistory>& runs);

}  // namespace lockstep::app
