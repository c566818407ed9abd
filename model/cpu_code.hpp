/// \file
/// Names the libraries and code paths that compute on this machine's CPU, for --version and messages.
#pragma once

#include <string>

#include "model/bf16_unit.hpp"

namespace lockstep::model {

/// The loaded libraries, the first with the processor that it detected: "OpenBLAS 0.3.21 SkylakeX, oneDNN 2.7.2".
std::string cpu_libraries();
/// The code paths chosen for this processor: "own products x86-64-v4, loops x86-64-v4", or "own products in bf16 by
/// AVX512-BF16, loops x86-64-v4".
std::string cpu_code(Bf16Unit unit = Bf16Unit::none);

}  // namespace lockstep::model
