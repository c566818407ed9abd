/// \file
/// What a file of weights says of its network, in texts, and what is understood of it again.
#pragma once

#include "app/options/train_options.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/exchange/safetensors.hpp"
#include "model/network.hpp"

namespace lockstep::app {

model::SampleShape sample_shape_of(const io::NetworkIdentity& network);

/// "format" = "pt", as the readers of safetensors expect; the others begin with "lockstep_": format, network,
/// signature, features, outputs, image ("32,32,3"), tokens, step, program, configuration, vocabulary, data. Empty ones are
/// left out.
io::Metadata metadata_of(const io::TrainingRecord& record, const TrainOptions& trained);

/// The record of a checkpoint that holds such weights and nothing else: metadata_of() of it gives the metadata back.
/// Throws io::FileError, without the name of a file, where a text is missing or is none of ours.
io::TrainingRecord record_of(const io::Metadata& metadata);

/// The lines of a configuration that say what the network is and how samples reach it.
std::string network_configuration(const TrainOptions& trained);

}  // namespace lockstep::app
