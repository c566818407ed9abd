/// \file
/// Gives all ranks the same error when the user's input is wrong on some of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective. Like comm::gather_distinct(), but a text that all ranks give comes without the names of the ranks.
std::vector<std::string> gather_said(comm::Communicator& communicator, const std::string& text);

/// Collective. Like comm::all_succeed(), but a UsageError, or an io::UnknownName, on any rank becomes a UsageError on
/// all ranks, which contains each distinct text once.
void all_succeed_or_usage(comm::Communicator& communicator, const std::function<void()>& work);

std::string join_lines(const std::vector<std::string>& lines);

}  // namespace lockstep::app
