/// \file
/// The world these tests run in: one MPI session per process, owned by main().
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Set by main() before the first test.
MpiSession& session();

inline std::unique_ptr<Communicator> communicator_over(Transport transport, double deadline_seconds = 60) {
  return make_communicator(session(), {.transport = transport, .deadline_seconds = deadline_seconds});
}

/// Runs a test over both transports.
class OverBothTransports : public testing::TestWithParam<Transport> {
 protected:
  std::unique_ptr<Communicator> communicator_ = communicator_over(GetParam());
};

inline std::string transport_test_name(const testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::ring ? "ring" : "shared_memory";
}

#define LOCKSTEP_OVER_BOTH_TRANSPORTS(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values(Transport::shared_memory, Transport::ring), transport_test_name)

}  // namespace lockstep::comm
