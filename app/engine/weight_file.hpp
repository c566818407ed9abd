/// \file
/// Reads weights of other programs: a safetensors file becomes a checkpoint with Lockstep's names for its tensors.
#pragma once

#include <filesystem>
#include <string>

#include "io/checkpoints/checkpoint.hpp"
#include "io/exchange/safetensors.hpp"

namespace lockstep::app {

/// True if the file has GPT-2's tensors under Hugging Face's names ("[transformer.]h.0.attn.c_attn.weight").
bool names_gpt2(const io::SafetensorsFile& file);

/// Returns the tensor's name in Lockstep's networks; "" if the tensor is not needed (the masks attn.bias and
/// attn.masked_bias, and the head's table if it equals the embedding's). Throws io::FileError for a name that GPT-2
/// does not have.
std::string name_of_gpt2_tensor(const std::string& name);

/// Returns the tensors as the group "parameters", in the order of the file. GPT-2's tensors get Lockstep's names, all
/// others keep their own. A head whose table differs from the embedding's becomes head/weight, with a head/bias of
/// zeros. The record is empty. Throws io::FileError, which names the file, before it allocates memory for tensors that
/// it does not need.
io::Checkpoint read_weight_file(const io::SafetensorsFile& file);

}  // namespace lockstep::app
