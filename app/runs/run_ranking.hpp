/// \file
/// Compares runs: ranking, and the options that differ.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/runs/run_history.hpp"

namespace lockstep::app {

/// An option whose value differs between runs, with its value in each run; "" if it has no effect.
struct DifferentOption {
  std::string name;
  std::vector<std::string> values;
};
std::vector<DifferentOption> differences_of(const std::vector<RunHistory>& runs);

/// Returns indices in `runs`, the run with the best validation metric first. Runs without a metric are last, in their
/// order. Runs of different groups are not compared: a group follows its first run.
std::vector<std::size_t> ranking_of(const std::vector<RunHistory>& runs);

/// Runs that can be compared: the same metric on the same validation data.
struct RunGroup {
  std::string title;  ///< "accuracy on data/test"; unlike those of the other groups
  std::vector<RunHistory> runs;
};
/// Returns the groups in the order of their first runs. A run without records joins the runs on its data.
std::vector<RunGroup> groups_of(const std::vector<RunHistory>& runs);
/// "--learning-rate 0.1 --hidden 8": the values of run `index` for the options that differ.
std::string different_options(const std::vector<DifferentOption>& different, std::size_t index);

/// "training", "done" …
std::string state_words(const RunSummary& summary);

/// Formats the ranking: rank, run, best metric, the options that differ, step, loss, steps, steps per second, time and
/// state; a table for each group.
std::string format_ranking(const std::vector<RunHistory>& runs);

}  // namespace lockstep::app
