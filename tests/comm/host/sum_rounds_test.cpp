/// Who exchanges with whom in a sum of few rounds, played on sets of terms.
#include "comm/host/sum_rounds.hpp"

#include <bit>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

int least_rounds(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

/// How often each rank's term is in a sum.
using Terms = std::map<int, int>;
Terms sum(Terms one, const Terms& other) {
  for (const auto& [rank, times] : other) one[rank] += times;
  return one;
}
Terms all_once(int size) {
  Terms terms;
  for (int rank = 0; rank < size; ++rank) terms[rank] = 1;
  return terms;
}

TEST(Doubling, EveryRankGetsEveryTermOnceInTheFewestRounds) {
  for (int size = 1; size <= 70; ++size) {
    std::vector<std::vector<DoublingRound>> rounds;
    std::vector<Terms> sums;
    int most = 0;
    for (int rank = 0; rank < size; ++rank) {
      rounds.push_back(doubling_rounds(size, rank));
      sums.push_back({{rank, 1}});
      most = std::max(most, static_cast<int>(rounds.back().size()));
    }
    EXPECT_EQ(most, least_rounds(size)) << size;
    // Messages wait for their receivers: a rank that is in no pair begins with the second round of the others.
    std::vector<std::size_t> next(static_cast<std::size_t>(size));
    for (int turn = 0; turn < most; ++turn) {
      const std::vector<Terms> before = sums;
      for (int rank = 0; rank < size; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        const bool joins = rounds[r].size() == static_cast<std::size_t>(most) || turn > 0;
        if (!joins) continue;
        const DoublingRound& round = rounds[r][next[r]++];
        // The sender says so, too, and in the same turn.
        const auto& theirs = rounds[static_cast<std::size_t>(round.from)];
        const std::size_t at = static_cast<std::size_t>(turn) - (static_cast<std::size_t>(most) - theirs.size());
        ASSERT_LT(at, theirs.size());
        const auto receiving = theirs[at].receiving();
        EXPECT_EQ(std::count(receiving.begin(), receiving.end(), rank), 1) << size << ": " << rank;
        sums[r] = sum(before[r], before[static_cast<std::size_t>(round.from)]);
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(next[static_cast<std::size_t>(rank)], rounds[static_cast<std::size_t>(rank)].size());
      EXPECT_EQ(sums[static_cast<std::size_t>(rank)], all_once(size)) << "rank " << rank << " of " << size;
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

TEST(Halving, EveryBlockHasEveryTermOnceAndIsGatheredEverywhere) {
  for (int size = 1; size <= 70; ++size) {
    const std::vector<HalvingRound> rounds = halving_rounds(size);
    EXPECT_EQ(static_cast<int>(rounds.size()), least_rounds(size)) << size;
    // blocks[rank][owner]
    std::vector<std::vector<Terms>> blocks(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      blocks[static_cast<std::size_t>(rank)].assign(static_cast<std::size_t>(size), {{rank, 1}});
    }
    const auto at = [&](auto& all, int rank, int block) -> auto& {
      return all[static_cast<std::size_t>(rank)][static_cast<std::size_t>((rank + block) % size)];
    };
    int sent = 0;
    for (const HalvingRound& round : rounds) {
      const auto before = blocks;
      sent += round.blocks;
      for (int rank = 0; rank < size; ++rank) {
        const int from = (rank - round.skip + size) % size;
        for (int i = 0; i < round.blocks; ++i) {
          at(blocks, rank, i) = sum(at(before, rank, i), at(before, from, round.skip + i));
        }
      }
    }
    EXPECT_EQ(sent, size - 1) << "blocks, the least there is";
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(at(blocks, rank, 0), all_once(size)) << rank << " of " << size;
    for (std::size_t i = rounds.size(); i-- > 0;) {
      const auto before = blocks;
      for (int rank = 0; rank < size; ++rank) {
        const int from = (rank + rounds[i].skip) % size;
        for (int block = 0; block < rounds[i].blocks; ++block) {
          at(blocks, rank, rounds[i].skip + block) = at(before, from, block);
        }
      }
    }
    for (const auto& of_rank : blocks) {
      for (const Terms& block : of_rank) EXPECT_EQ(block, all_once(size)) << size;
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
