/// \file
/// The list of all shipped networks. CMake writes shipped_networks() from the files in networks/.
#pragma once

#include <span>
#include <string_view>

#include "model/network.hpp"

namespace lockstep::model {

/// Texts of the shipped networks, in alphabetical order of their names.
std::span<const std::string_view> shipped_networks();

/// All shipped networks, in alphabetical order of their names.
std::span<const NetworkKind> network_kinds();

}  // namespace lockstep::model
