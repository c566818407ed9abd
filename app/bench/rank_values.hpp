/// \file
/// Measured numbers of all ranks, side by side.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::app {

/// Collective: returns the numbers of all ranks as [index][rank]. All ranks contribute equally many.
std::vector<double> gather_values(comm::Communicator& communicator, std::span<const double> own);

/// Collective: returns for each index the largest value on any rank.
std::vector<double> largest_over_ranks(comm::Communicator& communicator, std::span<const double> own);

}  // namespace lockstep::app
