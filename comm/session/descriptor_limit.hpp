/// \file
/// Limit of files and connections that this process may have open at once (RLIMIT_NOFILE). MPI over TCP keeps a
/// connection to each rank that a rank has ever sent to or received from.
#pragma once

#include <cstdint>

namespace lockstep::comm {

/// Raises the soft limit to the hard limit. Child processes inherit it. Call it before MPI starts. Returns the
/// resulting limit.
std::uint64_t raise_descriptor_limit() noexcept;

}  // namespace lockstep::comm
