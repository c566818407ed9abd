/// \file
/// Writes and reads the metadata of a network in a file of weights.
#pragma once

#include "app/options/train_options.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/exchange/safetensors.hpp"
#include "model/network.hpp"

namespace lockstep::app {

model::SampleShape sample_shape_of(const io::TrainingRecord& record);

/// Returns the metadata. "format" is "pt", which readers of safetensors expect; the other keys begin with "lockstep_":
/// format, network, signature, features, outputs, image ("32,32,3"), tokens, step, program, configuration,
/// network_text, vocabulary, data. Empty values are left out.
io::Metadata metadata_of(const io::TrainingRecord& record, const LearningProblem& trained);

/// The inverse of metadata_of(): returns the record of a checkpoint that contains only weights. Throws io::FileError,
/// without the name of a file, if a text is missing or was not written by Lockstep.
io::TrainingRecord record_of(const io::Metadata& metadata);

}  // namespace lockstep::app
