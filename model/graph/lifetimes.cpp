#include "model/graph/lifetimes.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace lockstep::model {

namespace {

std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct PlacedBlock {
  Lifetime lifetime;
  std::size_t offset, end;
};

}  // namespace

MemoryPlacement place_by_lifetimes(std::span<const MemoryBlock> blocks, std::size_t alignment) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return blocks[i].bytes; });

  MemoryPlacement placement{.offsets = std::vector<std::size_t>(blocks.size()), .bytes = 0};
  std::vector<PlacedBlock> placed;  // by offset
  placed.reserve(blocks.size());
  for (const std::size_t i : order) {
    const std::size_t size = rounded_up(blocks[i].bytes, alignment);
    if (size == 0) continue;
    std::size_t offset = 0;
    for (const PlacedBlock& other : placed) {
      if (other.offset >= offset + size) break;
      if (other.end > offset && other.lifetime.meets(blocks[i].lifetime)) offset = other.end;
    }
    const auto behind = std::ranges::upper_bound(placed, offset, {}, &PlacedBlock::offset);
    placed.insert(behind, {blocks[i].lifetime, offset, offset + size});
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + size);
  }
  return placement;
}

std::size_t most_bytes_at_a_tick(std::span<const MemoryBlock> blocks, std::size_t alignment) {
  std::map<std::int64_t, std::int64_t> changes;
  for (const MemoryBlock& block : blocks) {
    const auto size = static_cast<std::int64_t>(rounded_up(block.bytes, alignment));
    changes[block.lifetime.first] += size;
    changes[std::int64_t{block.lifetime.last} + 1] -= size;
  }
  std::int64_t bytes = 0, most = 0;
  for (const auto& [tick, change] : changes) most = std::max(most, bytes += change);
  return static_cast<std::size_t>(most);
}

}  // namespace lockstep::model
