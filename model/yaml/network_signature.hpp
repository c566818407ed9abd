/// \file
/// The signature of a network that has a file: equal signatures, equal networks.
#pragma once

#include <cstdint>
#include <string>

#include "model/graph/description.hpp"
#include "model/network.hpp"

namespace lockstep::model {

/// Returns a hash of everything that determines the network's function: kinds, names, arguments and shape, without
/// initial values, dropout, decay and groups.
std::uint64_t hash_of(const Description& description);

/// Returns Network::signature(). Signatures of shipped networks have the same form as in old checkpoints.
std::string signature_of(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                         const Description& description);

}  // namespace lockstep::model
