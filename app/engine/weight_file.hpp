/// \file
/// Weights of others: a safetensors file as if it were a checkpoint, with our names for its tensors.
#pragma once

#include <filesystem>
#include <string>

#include "io/checkpoints/checkpoint.hpp"
#include "io/exchange/safetensors.hpp"

namespace lockstep::app {

/// GPT-2's tensors under Hugging Face's names ("[transformer.]h.0.attn.c_attn.weight").
bool names_gpt2(const io::SafetensorsFile& file);

/// The tensor's name in networks of ours; "": it holds no weights (the masks attn.bias and attn.masked_bias, and the
/// head's table where it is the embedding's). Throws io::FileError for a name that GPT-2 does not have.
std::string name_of_gpt2_tensor(const std::string& name);

/// Its tensors as the group "parameters", in the order of the file: those of GPT-2 under our names, all others under
/// their own. A head that is another table than the embedding's becomes head/weight, and head/bias of zeros. The record
/// says nothing. Throws io::FileError naming the file, before memory is taken for what is no weight.
io::Checkpoint read_weight_file(const io::SafetensorsFile& file);

}  // namespace lockstep::app
