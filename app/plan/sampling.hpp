/// \file
/// Which samples of the training data an epoch has.
#pragma once

#include <memory>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Collective. The training data as --sampling draws them: each sample once, as they are, or balanced, which takes the
/// labels of all samples. Throws UsageError where the two do not go together, and comm::AgreedError, alike on all
/// ranks.
std::unique_ptr<io::Dataset> sampled(comm::Communicator& communicator, const TrainOptions& options,
                                     const model::Network& network, std::unique_ptr<io::Dataset> training);

}  // namespace lockstep::app
