/// \file
/// The one table of options that go with a mode of agreement. Refusals come from it, and a table of comm/README.md.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "model/update_rule.hpp"

namespace lockstep::app {

/// All that decides if a job's options go together.
struct Combination {
  const TrainOptions& options;
  model::OptimizerKind optimizer;  ///< the optimiser of the decided workload
  int servers = 0;                 ///< number of servers
  bool gpus = false;
  bool synchronizes = false;   ///< the network has sums over ranks in its forward pass
  bool has_losses = false;     ///< the network's file names several losses
  bool counts_labels = false;  ///< masks whose positions have weights: the divisor of a step's loss counts its labels
};

/// Throws UsageError for the first option that does not go with the mode of agreement, or with --reproducible.
void require_combination(const Combination& job);

/// The table of options and modes in Markdown.
std::string format_combinations();

}  // namespace lockstep::app
