/// \file
/// Judgements about ranks and hosts: names, program, processors, limits, environment. They depend only on facts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"

namespace lockstep::app {

using FactOf = std::function<std::string(const RankFacts&)>;

/// The ranks with one value.
struct ValueGroup {
  std::string value;
  std::vector<int> ranks;
};
/// Groups ranks by value. The first group is the largest; its value counts as right.
std::vector<ValueGroup> group_by(std::span<const RankFacts> facts, const FactOf& value);
/// The ranks of all these groups, ascending.
std::vector<int> ranks_of(std::span<const ValueGroup> groups);
/// Returns hosts without a rank in the largest group, if that group has more than half of all `ranks`; otherwise none.
std::vector<std::string> minority(std::span<const ValueGroup> groups, std::span<const HostGroup> hosts,
                                  std::size_t ranks);
/// "rank 3 (node2)", "ranks 4-7 (node2 and node3)".
std::string name_places(std::span<const HostGroup> hosts, std::span<const int> ranks);
/// Returns hosts whose ranks are all in `ranks`.
std::vector<std::string> whole_hosts(std::span<const HostGroup> hosts, std::span<const int> ranks);

/// Warnings for different machines with one name: local ranks, GPUs and shared memory depend on names.
std::vector<Finding> judge_names(std::span<const RankFacts> facts);
/// A warning for one machine with different names.
std::vector<Finding> judge_machines(std::span<const RankFacts> facts);
/// Errors for different program files or MPI libraries.
std::vector<Finding> judge_program(std::span<const RankFacts> facts);
/// A warning for different processor models.
std::vector<Finding> judge_processors(std::span<const RankFacts> facts);
/// A warning for different kinds of devices.
std::vector<Finding> judge_devices(std::span<const RankFacts> facts);
/// Warnings for variables that differ between ranks.
std::vector<Finding> judge_environment(std::span<const RankFacts> facts);

/// Needs of the job that process limits may restrict.
struct Wants {
  std::uint64_t open_files = 0;  ///< largest number of open files on any rank
  std::uint64_t file_size = 0;   ///< size of the largest file that rank 0 writes, in bytes
  bool gpus = false;             ///< memory is pinned
};
/// Errors if ulimit -n, -f or -v is too low; a warning for -l if memory must be registered with a device.
std::vector<Finding> judge_limits(std::span<const RankFacts> facts, const Wants& wants);
/// A warning if a host runs more processes than it has processors before the job begins.
std::vector<Finding> judge_load(std::span<const RankFacts> facts);
/// "load 0.4 on 8 processors"; with several hosts, for the busiest one.
std::string describe_load(std::span<const RankFacts> facts);
/// "bf16 by AVX512-BF16 at 190 GFLOP/s a thread, fp32 at 105: --precision bf16 is faster", for the slowest rank.
std::string describe_products(std::span<const RankFacts> facts);
/// A warning if /dev/shm has little free space: MPI and NCCL use it within a host.
std::vector<Finding> judge_shared_memory(std::span<const RankFacts> facts, bool gpus);

}  // namespace lockstep::app
