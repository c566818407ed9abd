#include "comm/host/sum_rounds.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::comm {
namespace {

/// Neighbouring positions that have the same sum.
struct Group {
  int first, count;
};

}  // namespace

std::vector<DoublingRound> doubling_rounds(int size, int position) {
  const int groups = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int pairs = size - groups;  // the first groups
  const auto group = [&](int index) {
    return index < pairs ? Group{.first = 2 * index, .count = 2} : Group{.first = index + pairs, .count = 1};
  };
  const int own_index = position < 2 * pairs ? position / 2 : position - pairs;
  const Group own = group(own_index);
  const int member = position - own.first;

  std::vector<DoublingRound> rounds;
  if (own.count == 2) {
    const int other = own.first + 1 - member;
    rounds.push_back({.from = other, .to = {other}, .receivers = 1});
  }
  for (int distance = 1; distance < groups; distance *= 2) {
    const Group other = group(own_index ^ distance);
    DoublingRound& round = rounds.emplace_back(DoublingRound{.from = other.first + std::min(member, other.count - 1)});
    for (int i = 0; i < other.count; ++i) {
      if (std::min(i, own.count - 1) == member) round.to[static_cast<std::size_t>(round.receivers++)] = other.first + i;
    }
  }
  return rounds;
}

std::vector<HalvingRound> halving_rounds(int size) {
  std::vector<HalvingRound> rounds;
  for (int most = size; most > 1;) {
    const int skip = (most + 1) / 2;
    rounds.push_back({.skip = skip, .blocks = most - skip});
    most = skip;
  }
  return rounds;
}

}  // namespace lockstep::comm
