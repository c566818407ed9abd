#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "world.hpp"

namespace lockstep::comm {
namespace {

constexpr double kLimit = 60;

TEST(Subset, TheFirstRanksAreAWorldOfTheirOwnAndTheOthersGoOn) {
  const auto whole = communicator_over(Transport::automatic);
  for (int ranks = 1; ranks <= session().size(); ++ranks) {
    for (const Transport transport : {Transport::automatic, Transport::ring}) {
      const std::unique_ptr<MpiSession> part = session().subset(ranks, kLimit);
      ASSERT_EQ(part != nullptr, session().rank() < ranks);
      if (part) {
        EXPECT_EQ(part->rank(), session().rank());
        EXPECT_EQ(part->size(), ranks);
        EXPECT_EQ(part->host(), session().host());
        const auto communicator = make_communicator(*part, {.transport = transport});
        std::vector<float> ones(100'000, 1.0f);
        communicator->all_reduce(ones);
        communicator->wait();
        EXPECT_EQ(ones.front(), static_cast<float>(ranks));
        EXPECT_EQ(ones.back(), static_cast<float>(ranks));
      }
      whole->barrier();
      whole->wait();
    }
  }
}

TEST(Subset, HasOneRankAtLeastAndNoMoreThanThereAre) {
  EXPECT_THROW(session().subset(0, kLimit), std::invalid_argument);
  EXPECT_THROW(session().subset(session().size() + 1, kLimit), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
