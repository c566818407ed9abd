/// \file
/// The loss and metric of a network on a dataset, bit-identical at any number of ranks.
#pragma once

#include <cstdint>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// Collective. Evaluates every sample once. The dataset is cut into chunks that do not depend on the world size. Rank k
/// mod world computes chunk k, and the sums are added in the order of the chunks. A chunk is `chunk` samples in file
/// order. For a network with recurrent state, a chunk is one of kSections equal sections of the data. Each section is
/// cut into lanes that read the preceding text first; `chunk` is then only the number of lanes that are computed at
/// once. Throws comm::ConsensusError if a rank cannot read its samples.
Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task);
inline constexpr std::int64_t kSections = 4;

}  // namespace lockstep::app
