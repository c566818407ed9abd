/// \file
/// Targets of losses that do not take every number.
#pragma once

#include <filesystem>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model_options.hpp"

namespace lockstep::app {

/// Collective. Throws UsageError, alike on all ranks, with the first sample whose targets are not what a loss needs:
/// for soft cross-entropy probabilities, at least 0 and with a sum that differs from 1 by no more than rounding; for
/// binary cross-entropy on one of several targets 0 or 1. Each rank reads a part of the targets. Reads nothing for
/// other losses. Throws comm::ConsensusError for errors of reading.
void require_targets(comm::Communicator& communicator, const model::ModelOptions& options, const io::Dataset& data,
                     const std::filesystem::path& path);

}  // namespace lockstep::app
