/// \file
/// A network knows some of the options; what else a user sets is a mistake to be told.
#pragma once

#include <initializer_list>
#include <string_view>

#include "model/network.hpp"

namespace lockstep::model {

/// Throws std::invalid_argument naming the first option that is set and not among `known`: "hidden", "depth", "layers",
/// "width", "heads", "dropout", "tied", "synchronize_batch_norm", "activation".
void require_known_options(const NetworkOptions& options, std::initializer_list<std::string_view> known);
/// The image that samples are. Throws std::invalid_argument where they are none, or outputs are not positive.
ImageShape require_image(std::string_view network, const SampleShape& shape);
/// Throws std::invalid_argument where samples are no tokens, or context or vocabulary are not positive.
void require_tokens(std::string_view network, const SampleShape& shape);

}  // namespace lockstep::model
