/// \file
/// The loss and metric of a network on a dataset, bit-identical at any number of ranks.
#pragma once

#include <cstdint>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// Collective. The dataset is cut into chunks, independent of the world size; rank k mod world computes chunk k, and
/// the sums are added in the order of the chunks. Every sample counts once. A chunk is `chunk` samples in file order.
/// For a network with recurrent state it is one of kSections equal sections of the data, each cut into lanes that read
/// the preceding text first; then `chunk` is only the number of lanes that are computed at once. Throws
/// comm::ConsensusError if a rank cannot read its samples.
Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task);
inline constexpr std::int64_t kSections = 4;

}  // namespace lockstep::app
