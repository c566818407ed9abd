/// \file
/// What a job is going to do, as text for rank 0: --dry-run ends after it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "app/placement.hpp"
#include "app/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Layers, parameters, memory per rank, FLOPs per step, buckets, the amount of work.
std::string format_plan(const Workload& workload, const TrainOptions& options, const Place& place,
                        const comm::Communicator& communicator, std::span<const comm::Slice> buckets);

/// A layer as backward meets it.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< of its gradients in the arena, elements, ascending; may be empty
};

/// Layers in the order of the backward pass: after one of them everything up to its last slice end is final. The last
/// one brings what becomes final with the whole pass: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. The same as a file, a JSON object a line. Throws comm::AgreedError where it cannot be written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
