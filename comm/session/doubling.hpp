/// \file
/// The partners of an exchange after which every rank has the data of all, in the fewest possible rounds (recursive
/// doubling, for any number of ranks).
///
/// In each round the ranks exchange everything they have so far, so that each then has the data of twice as many. p
/// positions form 2^k groups: position i < 2^k, and i + 2^k if it exists. First the two members of a group exchange.
/// Then groups exchange in k rounds, in each of which every member gets the other group's data from one of its members.
/// Any number of positions thus takes ceil(log2 p) rounds, and no rank waits for one that was left out. The pairs are
/// also those of a binomial tree, which MPI libraries use for small collectives: a rank exchanges with the same few
/// others.
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
/// Positions whose data a group has after a round: the first members of consecutive groups, then their second members.
using PositionRuns = std::array<PositionRun, 2>;

/// One round at one position.
struct DoublingRound {
  int from = 0;
  std::array<int, 2> to{};
  int receivers = 0;        ///< number of entries in `to`
  PositionRuns outgoing{};  ///< positions whose data this one sends
  PositionRuns incoming{};  ///< positions whose data arrive

  std::span<const int> receiving() const { return std::span(to).first(static_cast<std::size_t>(receivers)); }
};

/// The rounds of `position` among `size`. Rounds in which it takes no part have no entry.
std::vector<DoublingRound> doubling_rounds(int size, int position);

}  // namespace lockstep::comm
