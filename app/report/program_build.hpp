/// \file
/// Version, commit and compiler of the program.
#pragma once

#include <string>

namespace lockstep::app {

std::string program_version();  ///< "0.1.0"
/// The full commit, followed by "-dirty" if the sources had changes; "": unknown.
const char* program_commit() noexcept;
std::string program_compiler();  ///< "GCC 12.2.0, Release"

}  // namespace lockstep::app
