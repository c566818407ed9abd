#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "comm/consensus.hpp"
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

TEST(Group, EveryRankIsInOneAndCountsFromItsFirst) {
  const auto whole = communicator_over(Transport::automatic);
  const int size = session().size(), rank = session().rank();
  for (int cut = 1; cut < size; ++cut) {  // [0, cut) and [cut, size)
    const int first = rank < cut ? 0 : cut, ranks = rank < cut ? cut : size - cut;
    for (const Transport transport : {Transport::automatic, Transport::ring}) {
      const std::unique_ptr<MpiSession> group = session().group(first, ranks, kLimit);
      EXPECT_EQ(group->rank(), rank - first);
      EXPECT_EQ(group->size(), ranks);
      const auto communicator = make_communicator(*group, {.transport = transport});
      EXPECT_EQ(communicator->first_rank(), first);
      std::vector<float> own(100'000, static_cast<float>(rank));
      communicator->all_reduce(own);
      communicator->wait();
      const int last = first + ranks - 1;
      EXPECT_EQ(own.front(), static_cast<float>((first + last) * ranks / 2.0));
      EXPECT_EQ(own.back(), own.front());
      const std::vector<RankText> said = gather_distinct(*communicator, group->rank() == ranks - 1 ? "last" : "");
      ASSERT_EQ(said.size(), 1u);
      EXPECT_EQ(said[0].ranks, std::vector<int>{last}) << "messages name ranks by their numbers in the job";
      whole->barrier();
      whole->wait();
    }
  }
}

TEST(Group, HoldsTheRankThatAsks) {
  EXPECT_THROW(session().group(0, session().size() + 1, kLimit), std::invalid_argument);
  EXPECT_THROW(session().group(session().rank() + 1, 1, kLimit), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
