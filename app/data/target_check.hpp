/// \file
/// Checks targets for losses that do not accept every number.
#pragma once

#include <filesystem>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model_options.hpp"

namespace lockstep::app {

/// Collective. Throws the same UsageError on all ranks if a sample has invalid targets, and names the first such
/// sample. Soft cross-entropy needs probabilities: at least 0, with a sum that differs from 1 by at most 0.001. Binary
/// cross-entropy on one of several targets needs 0 or 1. Each rank reads a part of the targets; other losses read
/// nothing. Throws comm::ConsensusError if reading fails.
void require_targets(comm::Communicator& communicator, const model::ModelOptions& options, const io::Dataset& data,
                     const std::filesystem::path& path);

}  // namespace lockstep::app
