/// \file
/// Inputs that a network reads as tokens: fields with a fixed number of whole numbers, which an embedding reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/datasets/checked_tokens_dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// True if the network reads the input that starts at element `first` of a sample as tokens.
bool are_tokens(const model::Network& network, std::int64_t first);

/// Returns the tokens of a sample for an io::CheckedTokensDataset; empty if the network reads no tokens. Throws
/// UsageError if the range in the data's statistics shows numbers that are no tokens. `path` appears in messages.
std::vector<io::TokenNumbers> tokens_of(const model::Network& network, const io::DatasetInfo& info,
                                        const std::filesystem::path& path);

/// Returns the token with this text. Throws UsageError if the vocabulary of the data has none, or several make the
/// text.
std::int32_t token_with_text(const std::string& text, const io::DatasetInfo& info, const std::filesystem::path& path);

}  // namespace lockstep::app
