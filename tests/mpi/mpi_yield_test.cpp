/// Yields inside MPI, as the switch of Open MPI shows them.
#include "comm/session/mpi_yield.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "comm/session/mpi_state.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

TEST(MpiYieldTest, CallsThatBlockYieldAsMpiHasDecidedAndPollsNever) {
  const auto* const yields = static_cast<const bool*>(dlsym(RTLD_DEFAULT, "opal_progress_yield_when_idle"));
  if (yields == nullptr || !session().state().uses_mpi()) GTEST_SKIP() << "of Open MPI";
  EXPECT_FALSE(*yields);
  auto* const set = reinterpret_cast<bool (*)(bool)>(dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
  ASSERT_NE(set, nullptr);
  for (const bool usual : {true, false}) {
    set(usual);  // as where ranks outnumber cores, and as elsewhere
    {
      const MpiYield yield;
      EXPECT_FALSE(*yields);
      {
        const MpiYield::WhileBlocking blocks(&yield);
        EXPECT_EQ(*yields, usual);
      }
      EXPECT_FALSE(*yields);
    }
    EXPECT_EQ(*yields, usual);
  }
  set(false);
}

TEST(MpiYieldTest, WithoutMpiNothingBlocks) { const MpiYield::WhileBlocking nothing(nullptr); }

}  // namespace
}  // namespace lockstep::comm
