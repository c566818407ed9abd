/// \file
/// Which MPI library this process runs with.
#pragma once

#include <string>

namespace lockstep::comm {

/// "Open MPI v4.1.4": the library's own words up to the first comma or line break.
std::string mpi_library();

}  // namespace lockstep::comm
