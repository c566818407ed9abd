/// \file
/// The world of these tests: one MPI session per process, owned by main().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Set by main() before the first test.
MpiSession& session();

inline std::unique_ptr<Communicator> communicator_over(Transport transport, double deadline_seconds = 60) {
  return make_communicator(session(), {.transport = transport, .deadline_seconds = deadline_seconds});
}

/// A transport, and for two-level the machines that the ranks pretend to run on.
struct TransportCase {
  Transport transport;
  const char* name;
  std::array<int, 5> machine_of_rank = {};
  bool overlap = false;  ///< a thread drives it
};

inline constexpr TransportCase kSharedMemory{Transport::shared_memory, "shared_memory"};
inline constexpr TransportCase kRing{Transport::ring, "ring"};
inline constexpr TransportCase kRingThread{Transport::ring, "ring_with_thread", {}, true};
inline constexpr TransportCase kMpi{Transport::mpi, "mpi"};
inline constexpr TransportCase kMpiThread{Transport::mpi, "mpi_with_thread", {}, true};
/// Hosts with several ranks, in blocks as schedulers place them by default, or round-robin.
inline constexpr TransportCase kTwoLevelBlocks{Transport::two_level, "two_level_in_blocks", {0, 0, 1, 1, 2}};
inline constexpr TransportCase kTwoLevelInTurn{Transport::two_level, "two_level_in_turn", {0, 1, 0, 1, 1}};
inline constexpr TransportCase kTwoLevelThread{Transport::two_level, "two_level_with_thread", {0, 1, 0, 1, 1}, true};
/// One rank on the first machine, all others on the second: one lane.
inline constexpr TransportCase kTwoLevelUneven{Transport::two_level, "two_level_uneven", {0, 1, 1, 1, 1}};
/// One level of the two: there is one machine, or every rank is alone on its own.
inline constexpr TransportCase kTwoLevelTogether{Transport::two_level, "two_level_together", {0, 0, 0, 0, 0}};
inline constexpr TransportCase kTwoLevelAlone{Transport::two_level, "two_level_alone", {0, 1, 2, 3, 4}};

inline std::unique_ptr<Communicator> communicator_over(const TransportCase& tested, double deadline_seconds = 60,
                                                       WireFormat wire = WireFormat::fp32,
                                                       std::optional<AllReduceLimits> limits = {}) {
  const auto rank = static_cast<std::size_t>(session().rank());
  return make_communicator(session(), {.transport = tested.transport,
                                       .wire = wire,
                                       .all_reduce = limits,
                                       .overlap = tested.overlap,
                                       .deadline_seconds = deadline_seconds,
                                       .pretended_machine = 1 + tested.machine_of_rank.at(rank)});
}

/// Number of machines of this world with that transport.
inline int machines_of(const TransportCase& tested) {
  std::set<int> machines;
  for (int rank = 0; rank < session().size(); ++rank) {
    machines.insert(tested.machine_of_rank.at(static_cast<std::size_t>(rank)));
  }
  return static_cast<int>(machines.size());
}

/// Runs a test over every transport.
class OverEveryTransport : public testing::TestWithParam<TransportCase> {
 protected:
  std::unique_ptr<Communicator> communicator_ = communicator_over(GetParam());
};

inline void PrintTo(const TransportCase& tested, std::ostream* out) { *out << tested.name; }
inline std::string case_name(const testing::TestParamInfo<TransportCase>& info) { return info.param.name; }

#define LOCKSTEP_OVER_EVERY_TRANSPORT(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values(kSharedMemory, kRing, kTwoLevelInTurn), case_name)
#define LOCKSTEP_OVER_EVERY_GROUPING(suite)                                                                     \
  INSTANTIATE_TEST_SUITE_P(, suite,                                                                             \
                           testing::Values(kSharedMemory, kRing, kRingThread, kTwoLevelBlocks, kTwoLevelInTurn, \
                                           kTwoLevelThread, kTwoLevelUneven),                                   \
                           case_name)

}  // namespace lockstep::comm
