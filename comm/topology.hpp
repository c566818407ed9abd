/// \file
/// Who runs where: one row per rank, gathered once at start.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

struct RankPlace {
  int rank = 0;
  int local_rank = 0;  ///< index among the ranks of its host
  std::string host;
  int pid = 0;
  std::string device;  ///< "cpu (2 threads)" or the GPU's name, PCI id, UUID: handed in by the caller
  std::string cores;   ///< cores this process may run on, as "0-3,8"
  int host_cores = 0;  ///< cores of its host; 0: unknown
};

/// Collective. `device` describes this rank's device.
std::vector<RankPlace> gather_topology(Communicator& communicator, const std::string& device);

/// The table rank 0 prints. More than `max_rows` ranks are folded per host ("ranks 8-15  node2  8 x cpu").
std::string format_topology(const std::vector<RankPlace>& places, int max_rows = 32);

/// One sentence for each thing that will make the job slow: ranks of a host bound to the same core while others are
/// free, more ranks (x threads) than cores. Empty when all is well.
std::vector<std::string> topology_warnings(const std::vector<RankPlace>& places, int threads_per_rank);

}  // namespace lockstep::comm
