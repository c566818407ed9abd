/// \file
/// The cores on which this process may run, for machines of any size.
#pragma once

#include <vector>

namespace lockstep::comm {

/// Ascending numbers; empty: unknown.
std::vector<int> own_cores();

}  // namespace lockstep::comm
