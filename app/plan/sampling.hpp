/// \file
/// Selects the samples of the training data that an epoch contains (--sampling).
#pragma once

#include "app/options/train_options.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective. Applies --sampling to the training data of the workload. Uniform sampling, each sample once per epoch,
/// changes nothing. Balanced sampling reads the labels of all samples. Throws UsageError if option and data do not fit,
/// and comm::ConsensusError if reading fails; the same on all ranks.
void apply_sampling(comm::Communicator& communicator, Workload& workload);

}  // namespace lockstep::app
