/// \file
/// Number of this thread's allocations with new: the test program counts.
#pragma once

#include <cstdint>

namespace lockstep::app {

std::int64_t allocations_of_this_thread() noexcept;

}  // namespace lockstep::app
