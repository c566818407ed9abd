/// \file
/// Texts between ranks, for messages; not for the hot path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective, in host memory: every rank's text, in rank order, on every rank. Any length.
std::vector<std::string> all_gather_text(Communicator& communicator, std::string_view text);

}  // namespace lockstep::comm
