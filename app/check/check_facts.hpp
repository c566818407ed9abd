/// \file
/// Facts of each rank about itself, its host and the data. All ranks get all facts; other files judge them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session/network_interfaces.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

/// One rank's view of the job's data.
struct DataFacts {
  bool opened = false;
  std::string error = {};        ///< reason if not opened
  std::string misfit = {};       ///< conflict between the data and the options, or among the options
  std::string fingerprint = {};  ///< names, counts, shapes and recorded checksums
  std::uint64_t files = 0, bytes = 0;
  std::string sizes = {};          ///< digest of the files' names and sizes
  std::string times = {};          ///< digest of their modification times
  std::uint64_t verified = 0;      ///< bytes whose checksums this rank has verified
  std::uint64_t samples_read = 0;  ///< samples whose values this rank has checked
  std::uint64_t samples_due = 0;   ///< this rank's share of the samples to check
  std::string twins = {};          ///< samples that are in both training and validation data, one phrase; "": unknown
  std::string leak = {};           ///< the same, if it makes validations worthless
  std::string refused = {};        ///< reason why training would refuse the data
  std::string damage = {};         ///< first checksum that differed
};

struct RankFacts {
  int rank = 0;
  std::string host;
  std::uint64_t machine = 0;             ///< as in comm::PeerInfo
  std::string program;                   ///< version and checksum of the program file
  std::string mpi;                       ///< library and version
  std::string processor;                 ///< "AMD EPYC 7543 32-Core Processor"
  std::string device;                    ///< "cpu (2 threads)", "NVIDIA H200"
  std::vector<std::string> environment;  ///< "NAME=VALUE" of variables that change how a job runs, sorted
  std::vector<comm::InterfaceAddress> addresses;
  std::vector<comm::FabricPort> fabric;
  std::uint64_t open_files = kNoLimit, locked_bytes = kNoLimit, address_space = kNoLimit, file_size = kNoLimit;
  std::uint64_t memory_total = 0, memory_available = 0;  ///< memory of the host; 0: unknown
  std::string group;                                     ///< control group that limits memory; empty: none
  std::uint64_t group_limit = 0, group_free = 0;
  std::uint64_t fp32_rate = 0, bf16_rate = 0;   ///< matrix products of one thread, in GFLOP/s; 0: not measured
  std::string bf16_unit;                        ///< fastest instructions for bf16, "AVX512-BF16"; empty: none
  std::uint64_t shared_memory_free = kNoLimit;  ///< free space in /dev/shm
  std::uint64_t memory_wanted = 0;              ///< host memory of this rank in training; 0: unknown
  std::uint64_t processors = 0;                 ///< number online; 0: unknown
  std::uint64_t load_percent = 0;  ///< 100 times the mean number of running or runnable processes in the last minute
  DataFacts data;
};

/// Returns this rank's facts, without `data` and `memory_wanted`. `program`: result of program_fingerprint().
RankFacts own_facts(int rank, const std::string& program);
/// Adds the files of open datasets (skips null ones).
void add_files(DataFacts& facts, std::span<const io::Dataset* const> datasets);

std::string to_text(const RankFacts& facts);
/// Parses to_text(). Skips unknown keys and keeps the defaults of missing ones, so that it reads facts of other
/// versions.
RankFacts facts_from(const std::string& text);
/// Collective: returns the facts of all ranks, by rank.
std::vector<RankFacts> gather_facts(comm::Communicator& communicator, const RankFacts& mine);

/// The ranks of one machine that use the same host name.
struct HostGroup {
  std::string name;  ///< unique: includes a rank if machines share a name
  std::vector<int> ranks;
};
/// Returns the hosts in the order of their first ranks.
std::vector<HostGroup> hosts_of(std::span<const RankFacts> facts);

/// True if RankFacts::environment contains the variable: it changes how a job runs, so it should be equal on all ranks.
bool is_watched_variable(std::string_view name);

}  // namespace lockstep::app
