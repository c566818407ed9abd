/// \file
/// The cores that this process may run on, on machines of any size.
#pragma once

#include <vector>

namespace lockstep::comm {

/// Ascending numbers; empty: the system does not tell.
std::vector<int> own_cores();

}  // namespace lockstep::comm
