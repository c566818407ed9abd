/// \file
/// Which samples of the training data an epoch has.
#pragma once

#include "app/options/train_options.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective. Makes the workload's training data those that --sampling draws: each sample once, as they are, or
/// balanced, which reads the labels of all samples. Throws UsageError if the two do not go together, and
/// comm::ConsensusError, alike on all ranks.
void apply_sampling(comm::Communicator& communicator, Workload& workload);

}  // namespace lockstep::app
