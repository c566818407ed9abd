/// \file
/// The list of all kinds of operations. CMake generates it from the names of the files in operations/.
#pragma once

#include <span>

#include "model/graph/operation.hpp"

namespace lockstep::model {

using OperationKinds = std::span<const OperationKind* const>;
OperationKinds operation_kinds();

}  // namespace lockstep::model
