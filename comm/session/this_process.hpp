/// \file
/// Properties of this process, available before and without MPI.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// Name of this machine, with ? for what is not printable ASCII; "unknown host" if it has none.
std::string host_name();

/// A random number from the system's entropy, never 0: identifies a process to another.
std::uint64_t random_nonce();

/// Writes the whole text to stderr without buffering. Gives up if a write fails, or if nobody reads for a second,
/// because a message must not keep a failed job from ending.
void write_stderr(std::string_view text) noexcept;

}  // namespace lockstep::comm
