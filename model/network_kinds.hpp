/// \file
/// The list of all shipped networks. CMake writes shipped_networks() from the files in networks/.
#pragma once

#include <span>
#include <string_view>

#include "model/network.hpp"

namespace lockstep::model {

/// A network of NAME.yaml has a text, one of NAME.cpp a kind.
struct ShippedNetwork {
  const NetworkKind* made;
  std::string_view text;
};
std::span<const ShippedNetwork> shipped_networks();

/// In alphabetical order.
std::span<const NetworkKind> network_kinds();

}  // namespace lockstep::model
