/// \file
/// A network as a table for people: a line for each layer.
#pragma once

#include <string>

#include "model/network.hpp"

namespace lockstep::app {

struct NetworkText {
  std::string table;  ///< lines, the last one says what is computed in one pass over memory
  std::int64_t parameters = 0;
  double flops = 0;  ///< per sample, forward and backward
};
NetworkText describe_network(const model::Network& network);

}  // namespace lockstep::app
