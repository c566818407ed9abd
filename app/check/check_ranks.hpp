/// \file
/// Judgements about ranks and hosts: names, program, processors, limits, environment. From facts alone.
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

/// Ranks with the same value.
struct ValueGroup {
  std::string value;
  std::vector<int> ranks;
};
/// The largest group first, which counts as right.
std::vector<ValueGroup> group_by(std::span<const RankFacts> facts, const FactOf& value);
/// The ranks of all these groups, in order.
std::vector<int> ranks_of(std::span<const ValueGroup> groups);
/// Hosts outside of the largest group, if that group is more than half of all `ranks`; otherwise none.
std::vector<std::string> minority(std::span<const ValueGroup> groups, std::span<const HostGroup> hosts,
                                  std::size_t ranks);
/// "rank 3 (node2)", "ranks 4-7 (node2 and node3)".
std::string name_places(std::span<const HostGroup> hosts, std::span<const int> ranks);
/// Hosts whose ranks are all among these.
std::vector<std::string> whole_hosts(std::span<const HostGroup> hosts, std::span<const int> ranks);

/// Warnings for different machines with one name: local ranks, GPUs and shared memory depend on names.
std::vector<Finding> judge_names(std::span<const RankFacts> facts);
/// A warning for one machine with different names.
std::vector<Finding> judge_machines(std::span<const RankFacts> facts);
/// Errors for another program file or another MPI library on some ranks.
std::vector<Finding> judge_program(std::span<const RankFacts> facts);
/// A warning for different models of processors.
std::vector<Finding> judge_processors(std::span<const RankFacts> facts);
/// A warning for different kinds of devices.
std::vector<Finding> judge_devices(std::span<const RankFacts> facts);
/// Warnings for variables that differ between ranks.
std::vector<Finding> judge_environment(std::span<const RankFacts> facts);

/// The job's needs that limits of a process may restrict.
struct Wants {
  std::uint64_t open_files = 0;  ///< largest number at once on any rank
  std::uint64_t file_size = 0;   ///< size of the largest file that rank 0 writes, in bytes
  bool gpus = false;             ///< memory is pinned
};
/// ulimit -n, -f and -v: errors if too low; -l: a warning if memory is registered with a device.
std::vector<Finding> judge_limits(std::span<const RankFacts> facts, const Wants& wants);
/// A warning if more processes compute than the host has processors, before the job has begun.
std::vector<Finding> judge_load(std::span<const RankFacts> facts);
/// "load 0.4 on 8 processors"; for several hosts that of the busiest.
std::string describe_load(std::span<const RankFacts> facts);
/// "bf16 by AVX512-BF16 at 190 GFLOP/s a thread, fp32 at 105: --precision bf16 is faster": the slowest rank's.
std::string describe_products(std::span<const RankFacts> facts);
/// A warning if little is left in /dev/shm, which MPI and NCCL use within a host.
std::vector<Finding> judge_shared_memory(std::span<const RankFacts> facts, bool gpus);

}  // namespace lockstep::app
