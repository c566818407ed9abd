/// \file
/// The NUMA nodes of this host: cores, each with memory and cards that are near to them.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep::comm {

struct NumaNode {
  int number = 0;
  std::set<int> cores;  ///< empty: memory alone
};

/// As the kernel tells them, ascending; `folder`: where. Empty: it does not.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& folder = "/sys/devices/system/node");

/// The numbers of those nodes that have one of these cores.
std::set<int> nodes_of(std::span<const int> cores, std::span<const NumaNode> nodes);

/// The nodes that cards of a fast network are attached to: InfiniBand and RoCE devices with a port that is active;
/// where there are none, Ethernet of 10 Gbit/s and more that is up. `folder`: of the kernel's classes of devices.
/// Empty: there are none, or the kernel does not tell.
std::set<int> network_card_nodes(const std::filesystem::path& folder = "/sys/class");

/// "0-3,8": ascending numbers, runs folded; and back. What is no number ends what is read.
std::string folded(const std::set<int>& numbers);
std::set<int> unfolded(const std::string& text);

}  // namespace lockstep::comm
