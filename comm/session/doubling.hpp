/// \file
/// Who exchanges with whom so that everybody has what everybody brought, after the fewest rounds there are (recursive
/// doubling, for any number of ranks).
///
/// In each round the ranks exchange what they have so far, so that after it each has the share of twice as many. p
/// positions are 2^k groups: position i < 2^k, and with it i + 2^k where there is one. First the two of a group
/// exchange; then groups exchange in k rounds, in each of which every member gets what the other group has from one of
/// its members. So any number of positions takes ceil(log2 p) rounds, and nobody waits for a rank that was left out.
/// Pairs that exchange are also those of a binomial tree, as MPI libraries have it for their small collectives: a rank
/// talks to the same few others.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace lockstep::comm {

/// Neighbouring positions.
struct PositionRun {
  int first = 0, count = 0;
  bool operator==(const PositionRun&) const = default;
};
/// What has come together in a group after a round: of neighbouring groups the first members, then the second ones.
using PositionRuns = std::array<PositionRun, 2>;

/// One round at one position.
struct DoublingRound {
  int from = 0;
  std::array<int, 2> to{};
  int receivers = 0;        ///< of `to`
  PositionRuns outgoing{};  ///< whose shares this one has by then
  PositionRuns incoming{};  ///< whose shares come

  std::span<const int> receiving() const { return std::span(to).first(static_cast<std::size_t>(receivers)); }
};

/// At `position` of `size`. No entry for a round in which it takes no part.
std::vector<DoublingRound> doubling_rounds(int size, int position);

}  // namespace lockstep::comm
