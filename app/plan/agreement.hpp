/// \file
/// How all ranks come to the same end where some of them were used wrongly.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective. As comm::gather_distinct, without naming the ranks of what all of them say.
std::vector<std::string> gather_said(comm::Communicator& communicator, const std::string& text);

/// Collective. As comm::all_succeed, and a UsageError on any rank becomes a UsageError on all, with each distinct text
/// once.
void all_succeed_or_usage(comm::Communicator& communicator, const std::function<void()>& work);

std::string join_lines(const std::vector<std::string>& lines);

}  // namespace lockstep::app
