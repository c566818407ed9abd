/// \file
/// A checkpoint for export: one set of weights, and their network.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/engine/chosen_checkpoint.hpp"
#include "app/options/stored_options.hpp"
#include "io/exchange/safetensors.hpp"
#include "model/network.hpp"

namespace lockstep::app {

struct TrainedNetwork {
  ChosenCheckpoint source;
  InferenceOptions trained;
  bool average = false;  ///< the weights are the averaged ones
  model::SampleShape shape;
  std::unique_ptr<model::Network> network;
  /// All of the network's parameters, including statistics, in its order; the values are the checkpoint's.
  std::vector<io::NamedTensor> weights;
};

/// Reads and verifies the checkpoint, without communication. `average` nullopt: as in the run's validations. Throws
/// UsageError if the run kept no average, io::FileError for other errors.
TrainedNetwork read_trained_network(const CheckpointChoice& choice, const std::optional<bool>& average);

/// Metadata for a file of weights, from which `lockstep import` can make a checkpoint. It depends only on the network,
/// not on the source of the weights.
io::Metadata describe_network(const TrainedNetwork& trained);

}  // namespace lockstep::app
