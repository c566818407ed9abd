/// \file
/// Judgements about the connections between hosts: pairs, interfaces, fabric, clocks. They depend only on figures and
/// facts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"
#include "comm/survey/network_probe.hpp"

namespace lockstep::app {

/// Usual figures of a pair: the median over the hosts of each host's best pair. With the best pairs, one bad host
/// counts once: among three hosts it affects two of three pairs, but only one of the three best figures.
struct Usual {
  double bandwidth = 0;  ///< bytes/s
  double latency = 0;    ///< seconds
};
Usual usual_figures(std::span<const comm::PairFigures> pairs, int hosts);

/// True below 70 % of the usual bandwidth.
bool is_slow(const comm::PairFigures& pair, const Usual& usual);
/// True above twice the usual latency and 50 us.
bool is_late(const comm::PairFigures& pair, const Usual& usual);
/// Returns slow or late pairs, to be measured again.
std::vector<comm::HostPair> slow_pairs(std::span<const comm::PairFigures> pairs, int hosts);
/// Replaces figures by better ones of a repeated measurement.
void merge_better(std::vector<comm::PairFigures>& pairs, std::span<const comm::PairFigures> again);

/// Errors: pairs that do not reach each other, pairs with less than a quarter of the usual bandwidth. Warnings: other
/// slow pairs, late pairs. If most of the bad pairs share a host, the finding names the host instead of the pairs. With
/// only two hosts, nothing can be compared.
std::vector<Finding> judge_pairs(std::span<const comm::PairFigures> pairs, std::span<const std::string> hosts);
/// "6 pairs of hosts, 0.94 GB/s (least 0.92), 31 us (most 35)".
std::string describe_pairs(std::span<const comm::PairFigures> pairs, int hosts);

/// Lists the sizes at which sums between hosts change their schedule, and says what to do if the measured figures suit
/// them badly.
std::string describe_all_reduce(std::span<const comm::PairFigures> pairs, int hosts);

/// A subnet in which every host has an address that no other host has.
struct CommonSubnet {
  std::string subnet;
  std::vector<std::string> interfaces;  ///< names, each once
  std::int64_t megabits = 0;            ///< speed of the slowest interface; 0: unknown
  int mtu = 0;                          ///< the smallest
};
/// Returns IPv4 subnets first, then by descending speed. `facts`: one rank of each host.
std::vector<CommonSubnet> common_subnets(std::span<const RankFacts> facts);

/// `facts`: one rank of each host, in the order of `hosts`. Errors: a host lacks an interface or subnet of
/// OMPI_MCA_btl_tcp_if_include, or has no address. Warnings: several hosts have the same address (docker0, virbr0) and
/// MPI may use it, no common subnet, unequal MTUs or speeds in one subnet.
std::vector<Finding> judge_interfaces(std::span<const RankFacts> facts, std::span<const std::string> hosts);
/// Warnings: hosts with fewer active InfiniBand ports than most hosts, or with slower ones.
std::vector<Finding> judge_fabric(std::span<const RankFacts> facts, std::span<const std::string> hosts);
/// Warning: the pairs reach less than 40 % of the fastest common subnet, so the traffic uses another path.
std::vector<Finding> judge_speed(std::span<const comm::PairFigures> pairs, std::span<const RankFacts> facts);

/// Warnings: clocks that differ by more than a second from the first host's, hosts that did not answer.
std::vector<Finding> judge_clocks(std::span<const comm::ClockOffset> offsets, std::span<const std::string> hosts);
std::string describe_clocks(std::span<const comm::ClockOffset> offsets);

}  // namespace lockstep::app
