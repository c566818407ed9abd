/// \file
/// Expands a network file to a flat list of operations, for given values of its options and a shape of samples.
#pragma once

#include <cstddef>

#include "model/graph/description.hpp"
#include "model/graph/operation_kinds.hpp"
#include "model/network.hpp"

namespace lockstep::model {

inline constexpr std::size_t kMaxNetworkCalls = 20'000;

/// Returns the calls of a kind, before rewrites. `options` must have a value for each option that is not automatic.
/// Throws std::invalid_argument, "FILE:LINE: ...".
Description expand(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                   OperationKinds operations = operation_kinds());

}  // namespace lockstep::model
