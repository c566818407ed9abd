/// \file
/// The libraries and the code that compute on the CPU of this machine: for --version and messages.
#pragma once

#include <string>

namespace lockstep::model {

/// "OpenBLAS 0.3.21 SkylakeX, oneDNN 2.7.2": the libraries that are loaded, the first with the processor that it takes
/// this one for.
std::string cpu_libraries();
/// "own products x86-64-v4, loops x86-64-v4": what is run on this processor.
std::string cpu_code();

}  // namespace lockstep::model
