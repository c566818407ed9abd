/// \file
/// The sentence about a file operation that does not come back (--io-deadline).
#pragma once

#include <string>

#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Why a wait has no end, and what to do. `deadline`: seconds, as --io-deadline says.
std::string describe_stall(const io::IoDeadline::Pending& pending, double deadline);

}  // namespace lockstep::app
