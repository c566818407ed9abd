/// \file
/// Inputs that a network reads as tokens: fields of whole numbers of fixed length, read through an embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/datasets/checked_tokens_dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// True if the numbers of a sample that begin at `first` are tokens of the network.
bool are_tokens(const model::Network& network, std::int64_t first);

/// The tokens of a sample, for an io::CheckedTokensDataset; none for most networks. Throws UsageError where the data's
/// statistics say that some are none. path: for messages.
std::vector<io::TokenNumbers> tokens_of(const model::Network& network, const io::DatasetInfo& info,
                                        const std::filesystem::path& path);

}  // namespace lockstep::app
