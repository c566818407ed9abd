/// \file
/// Placement of ranks: one row per rank, gathered once at start.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

struct RankPlace {
  int rank = 0;
  int local_rank = 0;  ///< index among the ranks of its host
  std::string host;
  int pid = 0;
  std::string device;           ///< "cpu (2 threads)" or the GPU's name, from the caller
  std::string identity;         ///< unique name of the device, "0000:1b:00.0 GPU-8f3c1a2b"; empty: none
  std::string cores;            ///< cores this process may run on, as "0-3,8"
  int host_cores = 0;           ///< cores of its host; 0: unknown
  std::string nodes = {};       ///< NUMA nodes that these cores belong to, as "0-1"; empty: unknown
  int host_nodes = 0;           ///< NUMA nodes of its host that have cores; 0: unknown
  std::string card_nodes = {};  ///< NUMA nodes of its host that a fast network's cards are attached to; empty: unknown
  std::string cpu_group = {};   ///< the control group that limits its CPUs; empty: none does
  double group_cpus = 0;        ///< CPUs that this group's processes together may use
};

/// Collective. `device` and `identity` describe this rank's device, in one line each.
std::vector<RankPlace> gather_topology(Communicator& communicator, const std::string& device,
                                       const std::string& identity = "");

/// The table for rank 0 to print, with the NUMA nodes of ranks and network cards if some host has several. More than
/// `max_rows` ranks are folded per host, devices without their identities ("ranks 8-15  node2  8 x cpu").
std::string format_topology(const std::vector<RankPlace>& places, int max_rows = 32);

/// A cause of slowness on a host, and the remedy.
struct TopologyWarning {
  std::string host;
  std::string what;    ///< "node7 runs 8 ranks on 4 cores"
  std::string remedy;  ///< "start fewer ranks per host, or use fewer threads"
};
std::string to_text(const TopologyWarning& warning);

/// Returns warnings about these placements; empty if there are none. Ranks of a host are bound to one core while others
/// are free. The ranks (times threads) outnumber the cores, or the CPUs that their control group may use. A rank may
/// run on several NUMA nodes although each rank could have its own. In a job of several hosts, no rank of a host is
/// near a network card.
std::vector<TopologyWarning> topology_warnings(const std::vector<RankPlace>& places, int threads_per_rank);

/// "rank 1", "ranks 0,2-5": ascending ranks, runs folded.
std::string name_ranks(std::span<const int> ranks);

}  // namespace lockstep::comm
