/// \file
/// Which numbers of a job's data are standardised, and with what: decided once, when a run begins.
#pragma once

#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::app {

/// Collective. Gathers the statistics that the options ask for, decides what is automatic, and puts the scales into the
/// workload: its data, its model and its task follow them. A run that goes on (`before`: its record, or nullptr) keeps
/// its own. Also warns of numbers that are too large for plain gradient descent. Throws UsageError, comm::AgreedError.
void standardize(comm::Communicator& communicator, const TrainOptions& options, const io::TrainingRecord* before,
                 Workload& workload);

}  // namespace lockstep::app
