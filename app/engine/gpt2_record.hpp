/// \file
/// Describes the network of a GPT-2 from another program: by its tensors, and by config.json in the folder of its file.
#pragma once

#include <cstdint>

#include "io/checkpoints/checkpoint.hpp"
#include "io/exchange/safetensors.hpp"

namespace lockstep::app {

/// Returns a record with the network and its vocabulary, without the network's signature. `read`: the tensors of
/// `file`. `heads`: number of attention heads; 0: that of config.json, or without one the width divided by 64. Throws
/// UsageError if the heads are unknown, do not divide the width or contradict config.json; io::FileError if config.json
/// describes a network that computes otherwise than the GPT-2 of Lockstep.
io::TrainingRecord record_of_gpt2(const io::SafetensorsFile& file, const io::Checkpoint& read, std::int64_t heads);

}  // namespace lockstep::app
