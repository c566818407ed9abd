/// \file
/// Standardises the data of a job: decides the scales of features and targets once, when a run begins.
#pragma once

#include <optional>

#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

/// Scales that a checkpoint contains.
struct KnownScales {
  io::FeatureScale features = {}, targets = {};
  bool decided = false;      ///< resumed run: automatic values are already decided
  bool new_targets = false;  ///< the scale of the targets must be decided again
  std::optional<io::DataDescription> trained_on =
      {};  ///< training data of the initial weights, if the inputs keep their meaning
};
/// Returns the known scales of a run that is resumed (`record`) or begins with given weights (`weights`). Either may be
/// nullptr.
KnownScales known_scales(const io::TrainingRecord* record, const io::TrainingRecord* weights, const Workload& workload);

/// Collective. Gathers the statistics that the options request, decides automatic values, and sets the scales in the
/// data, model and task of the workload. Keeps scales of a checkpoint. Also warns if numbers are too large for plain
/// gradient descent, or differ from those that the weights were trained on. Throws UsageError and comm::ConsensusError.
void standardize(comm::Communicator& communicator, const KnownScales& known, Workload& workload);

}  // namespace lockstep::app
