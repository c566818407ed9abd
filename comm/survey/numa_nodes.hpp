/// \file
/// The NUMA nodes of this host: cores, each node with memory and cards near them.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep::comm {

struct NumaNode {
  int number = 0;
  std::set<int> cores;  ///< empty: memory only
};

/// Nodes as listed by the kernel in `folder`, ascending. Empty: the kernel lists none.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& folder = "/sys/devices/system/node");

/// The numbers of the nodes that have at least one of these cores.
std::set<int> nodes_of(std::span<const int> cores, std::span<const NumaNode> nodes);

/// The nodes to which cards of a fast network are attached: InfiniBand and RoCE devices with an active port; without
/// those, Ethernet of at least 10 Gbit/s that is up. `folder`: the kernel's classes of devices. Empty: no such cards,
/// or unknown.
std::set<int> network_card_nodes(const std::filesystem::path& folder = "/sys/class");

/// "0-3,8": ascending numbers, runs folded; and the inverse. Reading ends at the first text that is not a number.
std::string folded(const std::set<int>& numbers);
std::set<int> unfolded(const std::string& text);

}  // namespace lockstep::comm
