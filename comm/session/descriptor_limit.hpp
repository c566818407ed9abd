/// \file
/// How many files and connections this process may have open at once (RLIMIT_NOFILE). MPI over TCP has a connection to
/// each rank that a rank has ever talked to.
#pragma once

#include <cstdint>

namespace lockstep::comm {

/// Takes all that the system allows without being asked for more: the soft limit becomes the hard one. The programs
/// that this one starts inherit it. Before MPI is started. Returns the limit that holds then.
std::uint64_t raise_descriptor_limit() noexcept;

}  // namespace lockstep::comm
