/// \file
/// Describes a network as a table with one line per layer.
#pragma once

#include <string>

#include "model/network.hpp"

namespace lockstep::app {

struct NetworkText {
  std::string table;  ///< lines; the last one lists operations that share one pass over memory
  std::int64_t parameters = 0;
  double flops = 0;  ///< per sample, forward and backward
};
NetworkText describe_network(const model::Network& network);

}  // namespace lockstep::app
