/// \file
/// Sums that take few rounds, for data whose time is that of the messages' way and not that of their bytes: who sends
/// what to whom, by positions on the ring.
///
/// DOUBLING: in each round the ranks exchange what they have summed so far, so that after it each has the sum of twice
/// as many (recursive doubling). p positions are 2^k groups of one or two neighbours. First the two of a group
/// exchange; then groups exchange in k rounds, in each of which every member gets the other group's sum from one of its
/// members. So any number of positions takes ceil(log2 p) rounds, the least there is, and nobody waits for a rank that
/// was left out. Each rank sends the whole data once a round, in one round perhaps twice. a + b and b + a have the same
/// bits, and so have all members of a group, by induction all ranks.
///
/// HALVING: the reduce-scatter on a circulant graph and the all-gather that is its mirror image (Träff 2024, "Optimal,
/// non-pipelined reduce-scatter and allreduce algorithms"), which do for any number of positions what recursive halving
/// and doubling do for powers of two (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005). Position r has p blocks,
/// counted from its own: block i is what position r + i owns. The first `most` blocks are in play, p at first. In a
/// round, `skip` = ceil(most / 2), it sends the blocks skip … most-1 to position r + skip, gets as many from position
/// r - skip, for which they are the blocks skip … most-1 and here 0 … most-skip-1, and adds them; `skip` are left in
/// play. After ceil(log2 p) rounds one is left: its own, with the terms of all. Each block leaves each rank once: p - 1
/// blocks, (p-1)/p of the data, the least there is. The all-gather goes back through the rounds: what was sent is
/// received. One rank completes a block, in a fixed order of additions: the same bits on all ranks and in every run.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace lockstep::comm {

/// One round of doubling at one position.
struct DoublingRound {
  int from = 0;
  std::array<int, 2> to{};
  int receivers = 0;  ///< of `to`

  std::span<const int> receiving() const { return std::span(to).first(static_cast<std::size_t>(receivers)); }
};

/// At `position` of `size`. No entry for a round in which it takes no part.
std::vector<DoublingRound> doubling_rounds(int size, int position);

/// One round of halving, the same at all positions: `blocks` of them, counted from the own one, from `skip` on leave,
/// and as many come for the blocks from 0 on.
struct HalvingRound {
  int skip = 0, blocks = 0;
};

std::vector<HalvingRound> halving_rounds(int size);

}  // namespace lockstep::comm
