/// \file
/// What a process says of itself, before and beside MPI.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// Of the machine this process runs on; "unknown host" where it has no name.
std::string host_name();

/// From the system's entropy, never 0: what two processes tell each other by.
std::uint64_t random_nonce();

/// All of it, past every buffer. What cannot be written is lost, also where nobody reads it for a second: the words of
/// a failure must not keep it from ending the job.
void write_stderr(std::string_view text) noexcept;

}  // namespace lockstep::comm
