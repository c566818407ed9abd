/// \file
/// The table of options that cannot be combined with a mode of agreement. Errors of the program and a table of
/// comm/README.md come from it.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

/// The facts that decide if the options of a job can be combined.
struct Combination {
  const AgreeOptions& agree;
  const ExecutionOptions& execution;
  const RunOptions& run;
  const model::OptimizerOptions& optimizer;
  bool reproducible = false;
  int servers = 0;  ///< number of servers
  bool gpus = false;
  bool synchronizes = false;   ///< the forward pass of the network sums over ranks
  bool has_losses = false;     ///< the network's file names several losses
  bool counts_labels = false;  ///< positions of masks have weights: the divisor of a step's loss counts its labels
};

/// Throws UsageError for the first option that cannot be combined with the mode of agreement or with --reproducible.
void require_combination(const Combination& job);

/// Returns the table of options and modes in Markdown.
std::string format_combinations();

}  // namespace lockstep::app
