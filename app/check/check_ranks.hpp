/// \file
/// Judgements about ranks and hosts as such: names, program, processors, limits, environment. From facts alone.
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

/// Ranks that agree on a value.
struct ValueGroup {
  std::string value;
  std::vector<int> ranks;
};
/// The largest group first: what most say counts as right.
std::vector<ValueGroup> group_by(std::span<const RankFacts> facts, const FactOf& value);
/// The ranks of all these groups, in order.
std::vector<int> ranks_of(std::span<const ValueGroup> groups);
/// Hosts outside of the largest group, where that group is more than half of all `ranks`; else none.
std::vector<std::string> minority(std::span<const ValueGroup> groups, std::span<const HostGroup> hosts,
                                  std::size_t ranks);
/// "rank 3 (node2)", "ranks 4-7 (node2 and node3)".
std::string name_places(std::span<const HostGroup> hosts, std::span<const int> ranks);
/// Hosts all of whose ranks are among these.
std::vector<std::string> whole_hosts(std::span<const HostGroup> hosts, std::span<const int> ranks);

/// Different machines under one name: local ranks, GPUs and shared memory go by names.
std::vector<Finding> judge_names(std::span<const RankFacts> facts);
/// One machine under different names: a warning.
std::vector<Finding> judge_machines(std::span<const RankFacts> facts);
/// Another program file, another MPI library on some ranks: errors.
std::vector<Finding> judge_program(std::span<const RankFacts> facts);
/// Another model of processor: a warning.
std::vector<Finding> judge_processors(std::span<const RankFacts> facts);
/// Another kind of device: a warning.
std::vector<Finding> judge_devices(std::span<const RankFacts> facts);
/// Variables that are not the same on all ranks: warnings.
std::vector<Finding> judge_environment(std::span<const RankFacts> facts);

/// What the job will want of the limits of a process.
struct Wants {
  std::uint64_t open_files = 0;  ///< at once, on any rank
  std::uint64_t file_size = 0;   ///< bytes of the largest file that rank 0 writes
  bool gpus = false;             ///< memory is pinned
};
/// ulimit -n, -f and -v: errors where too low; -l: a warning where memory is registered with a device.
std::vector<Finding> judge_limits(std::span<const RankFacts> facts, const Wants& wants);
/// More processes want to compute than the host has processors, before the job has begun: a warning.
std::vector<Finding> judge_load(std::span<const RankFacts> facts);
/// "load 0.4 on 8 processors"; of several hosts that of the busiest.
std::string describe_load(std::span<const RankFacts> facts);
/// Little left in /dev/shm, through which MPI and NCCL talk within a host: a warning.
std::vector<Finding> judge_shared_memory(std::span<const RankFacts> facts, bool gpus);

}  // namespace lockstep::app
