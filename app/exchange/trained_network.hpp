/// \file
/// A checkpoint for other programs: one set of weights, and the network that they belong to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/engine/chosen_checkpoint.hpp"
#include "app/options/train_options.hpp"
#include "io/exchange/safetensors.hpp"
#include "model/network.hpp"

namespace lockstep::app {

struct TrainedNetwork {
  ChosenCheckpoint source;
  TrainOptions trained;  ///< options of training
  bool average = false;  ///< the weights are the averaged ones
  model::SampleShape shape;
  std::unique_ptr<model::Network> network;
  /// All of the network's parameters, including statistics, in its order; the values are the checkpoint's.
  std::vector<io::NamedTensor> weights;
};

/// Reads and verifies the checkpoint; no communication. `average`: nullopt: as in the run's validations. Throws
/// UsageError if the run kept no average, io::FileError for other errors.
TrainedNetwork read_trained_network(const CheckpointChoice& choice, const std::optional<bool>& average);

/// Metadata of a file of weights, from which `lockstep import` makes a checkpoint: all of it depends on the network
/// alone, not on the source of the weights.
io::Metadata describe_network(const TrainedNetwork& trained);

}  // namespace lockstep::app
