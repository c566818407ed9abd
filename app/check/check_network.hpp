/// \file
/// Judgements about what joins the hosts: pairs, interfaces, fabric, clocks. From figures and facts alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"
#include "comm/survey/network_probe.hpp"

namespace lockstep::app {

/// What counts as usual: the median over the hosts of each one's best pair. A host that is bad spoils all pairs that it
/// has part in, two of three among three hosts; its own best is one figure of three.
struct Usual {
  double bandwidth = 0;  ///< bytes/s
  double latency = 0;    ///< seconds
};
Usual usual_figures(std::span<const comm::PairFigures> pairs, int hosts);

/// Less than 70 % of the usual bandwidth.
bool is_slow(const comm::PairFigures& pair, const Usual& usual);
/// More than twice the usual latency and 50 us.
bool is_late(const comm::PairFigures& pair, const Usual& usual);
/// Pairs that are either: worth a second look.
std::vector<comm::HostPair> slow_pairs(std::span<const comm::PairFigures> pairs, int hosts);
/// Takes the better figures of a second look.
void merge_better(std::vector<comm::PairFigures>& pairs, std::span<const comm::PairFigures> again);

/// Errors: pairs that do not reach each other, pairs with less than a quarter of the usual bandwidth. Warnings: other
/// slow ones, late ones. A host that is common to most of them is named and the pairs are not; with two hosts there is
/// nothing to compare with.
std::vector<Finding> judge_pairs(std::span<const comm::PairFigures> pairs, std::span<const std::string> hosts);
/// "6 pairs of hosts, 0.94 GB/s (least 0.92), 31 us (most 35)".
std::string describe_pairs(std::span<const comm::PairFigures> pairs, int hosts);

/// The limits by which sums between hosts take their schedules, and what to do where these figures are far from what
/// they suit.
std::string describe_all_reduce(std::span<const comm::PairFigures> pairs, int hosts);

/// A subnet in which every host has an address that no other host has.
struct CommonSubnet {
  std::string subnet;
  std::vector<std::string> interfaces;  ///< names, each once
  std::int64_t megabits = 0;            ///< of the slowest; 0: not known
  int mtu = 0;                          ///< the smallest
};
/// IPv4 first, the fastest first. `facts`: one rank of each host.
std::vector<CommonSubnet> common_subnets(std::span<const RankFacts> facts);

/// `facts`: one rank of each host, in the order of `hosts`. Errors: an interface or subnet in
/// OMPI_MCA_btl_tcp_if_include that a host lacks, a host without an address. Warnings: an address that several hosts
/// have (docker0, virbr0) and that MPI may take, no common subnet, unequal MTUs or speeds within one.
std::vector<Finding> judge_interfaces(std::span<const RankFacts> facts, std::span<const std::string> hosts);
/// Warnings: hosts with fewer active InfiniBand ports than most, or slower ones.
std::vector<Finding> judge_fabric(std::span<const RankFacts> facts, std::span<const std::string> hosts);
/// A warning where the pairs reach less than 40 % of the fastest common subnet: traffic takes another way.
std::vector<Finding> judge_speed(std::span<const comm::PairFigures> pairs, std::span<const RankFacts> facts);

/// Warnings: clocks more than a second from that of the first host, hosts that did not answer.
std::vector<Finding> judge_clocks(std::span<const comm::ClockOffset> offsets, std::span<const std::string> hosts);
std::string describe_clocks(std::span<const comm::ClockOffset> offsets);

}  // namespace lockstep::app
