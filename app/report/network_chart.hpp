/// \file
/// A network as a picture: its operations from top to bottom, and which reads which.
#pragma once

#include <string>
#include <string_view>

#include "model/network.hpp"

namespace lockstep::app {

/// SVG. An operation lies below all that it reads, and branches lie side by side. Where there are more than
/// kMaxDrawnOperations, those of a group of the description are one box. `title` is that of the picture.
std::string draw_network(const model::Network& network, const std::string& title);

inline constexpr std::size_t kMaxDrawnOperations = 60;

}  // namespace lockstep::app
