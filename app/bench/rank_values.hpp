/// \file
/// Measured numbers of all ranks, side by side.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective: [index][rank] of the numbers of all ranks, which contribute equally many.
std::vector<double> gather_values(comm::Communicator& communicator, std::span<const double> own);

/// Collective: for each of this rank's numbers, the largest on any rank.
std::vector<double> largest_over_ranks(comm::Communicator& communicator, std::span<const double> own);

}  // namespace lockstep::app
