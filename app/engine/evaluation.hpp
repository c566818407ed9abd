/// \file
/// The loss and metric of a network on a dataset: the same bits at any world size.
#pragma once

#include <cstdint>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// Collective. The dataset is cut into chunks, whatever the world size; chunk k is computed by rank k mod world, and
/// the sums are added in the order of the chunks. Every sample counts once. A chunk is `chunk` samples in file order;
/// for a network that carries state it is one of kSections equal sections of the data, each cut into lanes that have
/// read the text before them; then `chunk` only says how many lanes are computed at once. Throws comm::AgreedError when
/// a rank cannot read its samples.
Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task);
inline constexpr std::int64_t kSections = 4;

}  // namespace lockstep::app
