/// \file
/// A checkpoint as other programs get it: one set of weights, and what network they belong to.
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
  TrainOptions trained;  ///< how
  bool average = false;  ///< the weights are the averaged ones
  model::SampleShape shape;
  std::unique_ptr<model::Network> network;
  /// All of the network's parameters, statistics too, in its order; the values are the checkpoint's.
  std::vector<io::NamedTensor> weights;
};

/// Reads and verifies the checkpoint; no communication. `average`: nullopt: what the run validated with. Throws
/// UsageError where the run kept no average, io::FileError for the rest.
TrainedNetwork read_trained_network(const CheckpointChoice& choice, const std::optional<bool>& average);

/// What a file of weights says of its network, so that `lockstep import` makes a checkpoint of it: all of it depends on
/// the network alone, not on where the weights came from.
io::Metadata describe_network(const TrainedNetwork& trained);

}  // namespace lockstep::app
