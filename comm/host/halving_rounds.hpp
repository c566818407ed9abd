/// \file
/// Sums of few messages that move as few bytes as a ring: who sends what to whom, by positions on the ring.
///
/// It is the reduce-scatter on a circulant graph and the all-gather that is its mirror image (Träff 2024, "Optimal,
/// non-pipelined reduce-scatter and allreduce algorithms"), which do for any number of positions what recursive halving
/// and doubling do for powers of two (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005). Position r has p blocks,
/// counted from its own: block i is what position r + i owns. The first `most` blocks are in play, p at first. In a
/// round, `skip` = ceil(most / 2), it sends the blocks skip … most-1 to position r + skip, gets as many from position
/// r - skip, for which they are the blocks skip … most-1 and here 0 … most-skip-1, and adds them; `skip` are left in
/// play. After ceil(log2 p) rounds one is left: its own, with the terms of all. Each block leaves each rank once: p - 1
/// blocks, (p-1)/p of the data, the least there is. The all-gather goes back through the rounds: what was sent is
/// received. One rank completes a block, in a fixed order of additions: the same bits on all ranks and in every run.
#pragma once

#include <vector>

namespace lockstep::comm {

/// One round of halving, the same at all positions: `blocks` of them, counted from the own one, from `skip` on leave,
/// and as many come for the blocks from 0 on.
struct HalvingRound {
  int skip = 0, blocks = 0;
};

std::vector<HalvingRound> halving_rounds(int size);

}  // namespace lockstep::comm
