/// \file
/// The program itself: its version, its commit, its compiler.
#pragma once

#include <string>

namespace lockstep::app {

std::string program_version();  ///< "0.1.0"
/// The commit in full, "-dirty" behind it where the sources had changes; "": not known.
const char* program_commit() noexcept;
std::string program_compiler();  ///< "GCC 12.2.0, Release"

}  // namespace lockstep::app
