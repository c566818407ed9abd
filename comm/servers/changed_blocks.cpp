#include "comm/servers/changed_blocks.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {
namespace {

std::size_t block_count(std::size_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

std::size_t block_length(std::size_t elements, std::size_t block) {
  return std::min(kBlockElements, elements - block * kBlockElements);
}

bool is_zero(const float* values, std::size_t count) {
  static constexpr float kZeros[kBlockElements] = {};
  return std::memcmp(values, kZeros, count * sizeof(float)) == 0;
}

}  // namespace

void find_blocks_not_zero(std::span<const float> values, std::vector<std::uint32_t>& blocks) {
  blocks.clear();
  for (std::size_t block = 0; block < block_count(values.size()); ++block) {
    if (!is_zero(values.data() + block * kBlockElements, block_length(values.size(), block))) {
      blocks.push_back(static_cast<std::uint32_t>(block));
    }
  }
}

bool pack_blocks(std::span<const float> values, std::span<const std::uint32_t> blocks, std::vector<float>& packed) {
  std::size_t length = 1 + blocks.size();
  for (const std::uint32_t block : blocks) length += block_length(values.size(), block);
  if (length >= values.size()) return false;
  packed.resize(length);
  const auto count = static_cast<std::uint32_t>(blocks.size());
  std::memcpy(packed.data(), &count, sizeof count);
  if (!blocks.empty()) std::memcpy(packed.data() + 1, blocks.data(), blocks.size_bytes());
  float* at = packed.data() + 1 + blocks.size();
  for (const std::uint32_t block : blocks) {
    at = std::copy_n(values.data() + block * kBlockElements, block_length(values.size(), block), at);
  }
  return true;
}

bool unpack_blocks(std::span<const float> packed, std::span<float> values) {
  std::uint32_t count = 0;
  if (packed.empty()) return false;
  std::memcpy(&count, packed.data(), sizeof count);
  if (count > packed.size() - 1) return false;
  std::span<const float> left = packed.subspan(1 + count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t block = 0;
    std::memcpy(&block, packed.data() + 1 + i, sizeof block);
    if (block >= block_count(values.size())) return false;
    const std::size_t length = block_length(values.size(), block);
    if (left.size() < length) return false;
    std::copy_n(left.data(), length, values.data() + block * kBlockElements);
    left = left.subspan(length);
  }
  return left.empty();
}

void ChangedBlocks::begin(std::span<const float> now, std::int64_t version) {
  last_.assign(now.begin(), now.end());
  versions_.assign(block_count(now.size()), version);
  begun_ = version;
}

void ChangedBlocks::update(std::span<const float> now, std::int64_t version) {
  for (std::size_t block = 0; block < versions_.size(); ++block) {
    const std::size_t first = block * kBlockElements, length = block_length(now.size(), block);
    if (std::memcmp(now.data() + first, last_.data() + first, length * sizeof(float)) == 0) continue;
    std::copy_n(now.data() + first, length, last_.data() + first);
    versions_[block] = version;
  }
}

bool ChangedBlocks::since(std::int64_t version, std::vector<std::uint32_t>& blocks) const {
  if (!has_begun() || version < begun_) return false;
  blocks.clear();
  for (std::size_t block = 0; block < versions_.size(); ++block) {
    if (versions_[block] > version) blocks.push_back(static_cast<std::uint32_t>(block));
  }
  return true;
}

}  // namespace lockstep::comm
