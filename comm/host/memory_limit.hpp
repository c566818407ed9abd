/// \file
/// Checks this host's memory, so that a message comes before the kernel ends processes that exceed it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// The reason why `ranks` ranks of this host cannot allocate `bytes` each: together more than all of its memory, or one
/// alone more than is free. Empty: they can. `meminfo`: the text of /proc/meminfo; missing entries are no reason.
std::string memory_shortage(std::size_t bytes, int ranks, std::string_view meminfo);

/// The text of /proc/meminfo; empty if it does not exist.
std::string read_meminfo();

}  // namespace lockstep::comm
