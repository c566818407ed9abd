/// \file
/// What this host has of memory, for a refusal in words before the kernel ends processes without any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// Why `ranks` ranks of this host cannot take `bytes` each: together more than all of its memory, or one alone more
/// than is free. Empty: they may. `meminfo`: the text of /proc/meminfo; what it does not say is no reason.
std::string memory_shortage(std::size_t bytes, int ranks, std::string_view meminfo);

/// The text of /proc/meminfo; empty where there is none.
std::string read_meminfo();

}  // namespace lockstep::comm
