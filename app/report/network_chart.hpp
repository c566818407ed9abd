/// \file
/// Draws a network: its operations from top to bottom, with lines to the operations that read them.
#pragma once

#include <string>
#include <string_view>

#include "model/network.hpp"

namespace lockstep::app {

/// Returns SVG. An operation is below all operations that it reads; branches are side by side. If there are more than
/// kMaxDrawnOperations, the operations of a group of the description share one box. `title`: title of the picture.
std::string draw_network(const model::Network& network, const std::string& title);

inline constexpr std::size_t kMaxDrawnOperations = 60;

}  // namespace lockstep::app
