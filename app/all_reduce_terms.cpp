#include "app/all_reduce_terms.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep::app {
namespace {

constexpr int kOffsets = 16;

/// Up to a limit that leaves room for the sum over all ranks in the 24 bits of a float.
std::uint32_t base_of(std::size_t index, int ranks) {
  std::uint64_t bits = (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93u;
  bits ^= bits >> 32;
  const std::uint32_t limit = std::max(1u, (1u << 23) / static_cast<std::uint32_t>(ranks));
  return 1 + static_cast<std::uint32_t>(bits % limit);
}

}  // namespace

float bench_term(std::size_t index, int rank, int ranks) {
  return static_cast<float>(base_of(index, ranks) + static_cast<std::uint32_t>(rank % kOffsets));
}

float bench_sum(std::size_t index, int ranks) {
  const auto all = static_cast<std::uint32_t>(ranks), rounds = all / kOffsets, rest = all % kOffsets;
  const std::uint32_t offsets = rounds * (kOffsets * (kOffsets - 1) / 2) + (rest > 0 ? rest * (rest - 1) / 2 : 0);
  return static_cast<float>(all * base_of(index, ranks) + offsets);
}

std::size_t count_wrong(std::span<const float> sums, int ranks, std::size_t first) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] == bench_sum(first + i, ranks) ? 0 : 1;
  return wrong;
}

}  // namespace lockstep::app
