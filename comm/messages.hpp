/// \file
/// Exchanges texts between ranks, for messages to users; not for the hot path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective, in host memory. Returns every rank's text, in rank order, on every rank. Texts may have any length.
std::vector<std::string> all_gather_text(Communicator& communicator, std::string_view text);

}  // namespace lockstep::comm
