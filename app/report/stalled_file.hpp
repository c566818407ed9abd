/// \file
/// The error message for a file operation that does not return (--io-deadline).
#pragma once

#include <string>

#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Describes why a wait does not end, and what to do. `deadline`: the value of --io-deadline, in seconds.
std::string describe_stall(const io::IoDeadline::Pending& pending, double deadline);

}  // namespace lockstep::app
