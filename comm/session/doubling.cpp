#include "comm/session/doubling.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::comm {

std::vector<DoublingRound> doubling_rounds(int size, int position) {
  const int groups = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int pairs = size - groups;  // the first groups have two members
  const auto members = [&](int group) { return group < pairs ? 2 : 1; };
  const auto position_of = [&](int group, int member) { return group + member * groups; };
  /// The positions of all members of `count` groups.
  const auto runs = [&](int first, int count) {
    return PositionRuns{
        {{.first = first, .count = count}, {.first = groups + first, .count = std::clamp(pairs - first, 0, count)}}};
  };
  const int own = position % groups, member = position / groups;

  std::vector<DoublingRound> rounds;
  if (members(own) == 2) {
    const int other = position_of(own, 1 - member);
    DoublingRound& round = rounds.emplace_back(DoublingRound{.from = other, .to = {other}, .receivers = 1});
    round.outgoing[static_cast<std::size_t>(member)] = {.first = position, .count = 1};
    round.incoming[static_cast<std::size_t>(1 - member)] = {.first = other, .count = 1};
  }
  for (int distance = 1; distance < groups; distance *= 2) {
    const int other = own ^ distance;
    DoublingRound& round = rounds.emplace_back();
    round.from = position_of(other, std::min(member, members(other) - 1));
    for (int i = 0; i < members(other); ++i) {
      if (std::min(i, members(own) - 1) != member) continue;
      round.to[static_cast<std::size_t>(round.receivers++)] = position_of(other, i);
    }
    round.outgoing = runs(own & ~(distance - 1), distance);
    round.incoming = runs(other & ~(distance - 1), distance);
  }
  return rounds;
}

}  // namespace lockstep::comm
