/// \file
/// What each rank sees of itself, its host and the data, as facts that travel to all ranks: judged elsewhere.
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

/// The data of the job, as one rank sees it.
struct DataFacts {
  bool opened = false;
  std::string error = {};        ///< why not
  std::string misfit = {};       ///< why it does not go with the options, or they not with each other
  std::string fingerprint = {};  ///< of manifests: names, counts, shapes, recorded checksums
  std::uint64_t files = 0, bytes = 0;
  std::string sizes = {};      ///< digest of the files' names and sizes
  std::string times = {};      ///< digest of their times of change
  std::uint64_t verified = 0;  ///< bytes whose checksums this rank has recomputed
  std::string damage = {};     ///< the first that differed
};

struct RankFacts {
  int rank = 0;
  std::string host;
  std::uint64_t machine = 0;             ///< as in comm::PeerInfo
  std::string program;                   ///< version and checksum of the running file
  std::string mpi;                       ///< library and version
  std::string processor;                 ///< "AMD EPYC 7543 32-Core Processor"
  std::string device;                    ///< "cpu (2 threads)", "NVIDIA H200"
  std::vector<std::string> environment;  ///< "NAME=VALUE" of those that change how a job runs, sorted
  std::vector<comm::InterfaceAddress> addresses;
  std::vector<comm::FabricPort> fabric;
  std::uint64_t open_files = kNoLimit, locked_bytes = kNoLimit, address_space = kNoLimit, file_size = kNoLimit;
  std::uint64_t memory_total = 0, memory_available = 0;  ///< of the host; 0: not known
  std::string group;                                     ///< control group that limits memory; empty: none does
  std::uint64_t group_limit = 0, group_free = 0;
  std::uint64_t shared_memory_free = kNoLimit;  ///< of /dev/shm
  std::uint64_t memory_wanted = 0;              ///< of host memory by this rank, in training; 0: not known
  std::uint64_t processors = 0;                 ///< online; 0: not known
  std::uint64_t load_percent = 0;               ///< processes that ran or wanted to in the last minute, times 100
  DataFacts data;
};

/// This rank's, without data and memory_wanted. `program`: as program_fingerprint() tells.
RankFacts own_facts(int rank, const std::string& program);
/// Adds what can be seen of open datasets (null ones are passed over).
void add_files(DataFacts& facts, std::span<const io::Dataset* const> datasets);

std::string to_text(const RankFacts& facts);
/// Keys that it does not know are passed over, those that are missing keep their defaults: another program's facts can
/// still be told from ours.
RankFacts facts_from(const std::string& text);
/// Collective: everybody's, by rank.
std::vector<RankFacts> gather_facts(comm::Communicator& communicator, const RankFacts& mine);

/// Ranks that share a machine under one name.
struct HostGroup {
  std::string name;  ///< unlike all others: where machines share a name, with a rank
  std::vector<int> ranks;
};
/// In order of their first ranks.
std::vector<HostGroup> hosts_of(std::span<const RankFacts> facts);

/// Whether the variable belongs into RankFacts::environment: it changes how a job runs and should be equal everywhere.
bool is_watched_variable(std::string_view name);

}  // namespace lockstep::app
