/// The exchange of blocks by halving, simulated on sets of terms.
#include "comm/host/halving_rounds.hpp"

#include <bit>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

int least_rounds(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

/// Number of times that each rank's term is in a sum.
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
