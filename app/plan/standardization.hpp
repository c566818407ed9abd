/// \file
/// Which numbers of a job's data are standardised, and with what: decided once, when a run begins.
#pragma once

#include <optional>

#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

/// What a checkpoint knows of how numbers were standardised.
struct KnownScales {
  io::FeatureScale features = {}, targets = {};
  bool decided = false;                                ///< the run goes on: nothing automatic is decided any more
  bool new_outputs = false;                            ///< what scale they learn is decided anew
  std::optional<io::DataDescription> trained_on = {};  ///< of weights whose inputs are to mean what they did
};
/// Of a run that goes on (`record`), or begins with weights (`weights`); either may be nullptr.
KnownScales known_scales(const TrainOptions& options, const io::TrainingRecord* record,
                         const io::TrainingRecord* weights, const Workload& workload);

/// Collective. Gathers the statistics that the options ask for, decides what is automatic, and puts the scales into the
/// workload: its data, its model and its task follow them. What a checkpoint knows is kept. Also warns of numbers that
/// are too large for plain gradient descent, and of those that are none like the weights were trained on. Throws
/// UsageError, comm::AgreedError.
void standardize(comm::Communicator& communicator, const TrainOptions& options, const KnownScales& known,
                 Workload& workload);

}  // namespace lockstep::app
