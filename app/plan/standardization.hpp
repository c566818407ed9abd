/// \file
/// Standardisation of a job's data: features, targets and their scales, decided once, when a run begins.
#pragma once

#include <optional>

#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

/// A checkpoint's knowledge of how numbers were standardised.
struct KnownScales {
  io::FeatureScale features = {}, targets = {};
  bool decided = false;                                ///< the run is resumed: automatic values are already decided
  bool new_targets = false;                            ///< the scale of the targets is decided anew
  std::optional<io::DataDescription> trained_on = {};  ///< training data of weights whose inputs keep their meaning
};
/// Scales of a run that is resumed (`record`), or begins with given weights (`weights`); either may be nullptr.
KnownScales known_scales(const io::TrainingRecord* record, const io::TrainingRecord* weights, const Workload& workload);

/// Collective. Gathers the statistics that the options request, decides automatic values, and puts the scales into the
/// workload's data, model and task. Scales of a checkpoint are kept. Also warns of numbers that are too large for plain
/// gradient descent, and of numbers unlike those that the weights were trained on. Throws UsageError,
/// comm::ConsensusError.
void standardize(comm::Communicator& communicator, const KnownScales& known, Workload& workload);

}  // namespace lockstep::app
