/// \file
/// Sums with few messages and as few bytes as a ring: senders, receivers and blocks, by positions on the ring.
///
/// The algorithm is the reduce-scatter on a circulant graph and the all-gather that is its mirror image (Träff 2024,
/// "Optimal, non-pipelined reduce-scatter and allreduce algorithms"). For any number of positions it does the same as
/// recursive halving and doubling for powers of two (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005). Position r
/// has p blocks, counted from its own: block i belongs to position r + i. The first `most` blocks are active, initially
/// p. In a round, with `skip` = ceil(most / 2), position r sends the blocks skip … most-1 to position r + skip. It
/// receives as many from position r - skip, where they are the blocks skip … most-1; here they are 0 … most-skip-1. It
/// adds them, and `skip` blocks remain active. After ceil(log2 p) rounds one is left: its own, with the terms of all.
/// Each block leaves each rank once: p - 1 blocks, (p-1)/p of the data, the theoretical minimum. The all-gather runs
/// the rounds in reverse, with sending and receiving exchanged. One rank completes a block, in a fixed order of
/// additions: the same bits on all ranks and in every run.
#pragma once

#include <vector>

namespace lockstep::comm {

/// One round of halving, the same at all positions: `blocks` blocks, counted from the own one, leave from `skip` on; as
/// many arrive for the blocks from 0 on.
struct HalvingRound {
  int skip = 0, blocks = 0;
};

std::vector<HalvingRound> halving_rounds(int size);

}  // namespace lockstep::comm
