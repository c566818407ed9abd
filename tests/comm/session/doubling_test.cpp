/// The exchange by recursive doubling, simulated on sets of positions.
#include "comm/session/doubling.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Doubling, EveryRankHearsEveryRankOnceInTheFewestRounds) {
  for (int size = 1; size <= 70; ++size) {
    std::vector<std::vector<DoublingRound>> rounds;
    std::size_t most = 0;
    for (int rank = 0; rank < size; ++rank) {
      rounds.push_back(doubling_rounds(size, rank));
      most = std::max(most, rounds.back().size());
    }
    EXPECT_EQ(most, static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)))) << size;
    std::vector<std::set<int>> known;
    for (int rank = 0; rank < size; ++rank) known.push_back({rank});
    const auto positions = [](const PositionRuns& runs) {
      std::set<int> all;
      for (const PositionRun& run : runs) {
        for (int i = 0; i < run.count; ++i) all.insert(run.first + i);
      }
      return all;
    };
    for (std::size_t turn = 0; turn < most; ++turn) {
      const std::vector<std::set<int>> before = known;
      for (int rank = 0; rank < size; ++rank) {
        // A rank outside the pairs has one round less, and waits for those in pairs.
        const auto round_of = [&](int one) -> const DoublingRound* {
          const auto& own = rounds[static_cast<std::size_t>(one)];
          const std::size_t missed = most - own.size();
          return turn < missed ? nullptr : &own[turn - missed];
        };
        const DoublingRound* const own = round_of(rank);
        if (own == nullptr) continue;
        const DoublingRound* const theirs = round_of(own->from);
        ASSERT_NE(theirs, nullptr);
        const auto receiving = theirs->receiving();
        EXPECT_EQ(std::count(receiving.begin(), receiving.end(), rank), 1) << size << ": " << rank;
        EXPECT_EQ(positions(own->outgoing), before[static_cast<std::size_t>(rank)]) << size << ": " << rank;
        EXPECT_EQ(own->incoming, theirs->outgoing) << size << ": " << rank;
        for (const int peer : positions(own->incoming)) {
          EXPECT_TRUE(known[static_cast<std::size_t>(rank)].insert(peer).second) << size << ": " << rank << " twice";
        }
      }
    }
    for (const std::set<int>& all : known) EXPECT_EQ(all.size(), static_cast<std::size_t>(size));
  }
}

TEST(Doubling, PairsAreThoseOfABinomialTree) {
  for (int size = 1; size <= 70; ++size) {
    for (int rank = 1; rank < size; ++rank) {
      const int parent = rank - static_cast<int>(std::bit_floor(static_cast<unsigned>(rank)));
      bool is_a_pair = false;
      for (const DoublingRound& round : doubling_rounds(size, rank)) is_a_pair = is_a_pair || round.from == parent;
      EXPECT_TRUE(is_a_pair) << rank << " of " << size;
    }
  }
}

TEST(Doubling, NobodySendsWhatNobodyReceives) {
  for (int size = 1; size <= 70; ++size) {
    std::size_t sent = 0, received = 0;
    for (int rank = 0; rank < size; ++rank) {
      for (const DoublingRound& round : doubling_rounds(size, rank)) {
        sent += round.receiving().size();
        ++received;
      }
    }
    EXPECT_EQ(sent, received) << size;
  }
}

}  // namespace
}  // namespace lockstep::comm
