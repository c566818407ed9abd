#include "comm/session/start_guard.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(StartGuardDeathTest, ReadsTheEnvironmentBeforeTheCallThatWritesIt) {
  // Imitates MPI's start: new variables, for which the C library moves its list. A concurrent reader may crash.
  EXPECT_EXIT(
      {
        for (int round = 0; round < 300; ++round) {
          const StartGuard guard("a call", 60);
          for (int i = 0; i < 300; ++i) {
            setenv(("LOCKSTEP_TEST_" + std::to_string(round) + "_" + std::to_string(i)).c_str(), "value", 1);
          }
          if (round % 10 == 9) clearenv();
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::comm
