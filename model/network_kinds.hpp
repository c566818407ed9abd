/// \file
/// The list of all networks, written by CMake from the names of the files in networks/.
#pragma once

#include <span>

#include "model/network.hpp"

namespace lockstep::model {

std::span<const NetworkKind* const> network_kinds();

}  // namespace lockstep::model
