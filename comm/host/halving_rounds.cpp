#include "comm/host/halving_rounds.hpp"

namespace lockstep::comm {

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
