/// \file
/// The signature of a network that has a text: equal text, equal network.
#pragma once

#include <cstdint>
#include <string>

#include "model/graph/description.hpp"
#include "model/network.hpp"

namespace lockstep::model {

/// Identifies what the description computes: kinds, names, arguments and shape, without initial values, dropout, decay
/// and groups.
std::uint64_t hash_of(const Description& description);

/// Network::signature() of a kind that has a text. Those of shipped networks are what checkpoints have held since
/// before descriptions.
std::string signature_of(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                         const Description& description);

}  // namespace lockstep::model
