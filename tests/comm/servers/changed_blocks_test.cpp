#include "comm/servers/changed_blocks.hpp"

#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using Blocks = std::vector<std::uint32_t>;

TEST(ChangedBlocks, OnlyBlocksThatHoldSomethingArePackedAndComeBackInTheirPlaces) {
  for (const std::size_t elements : {65u, 128u, 1000u, 1024u}) {
    std::vector<float> values(elements, 0.0f), packed;
    Blocks blocks;
    values[elements - 1] = 3;
    find_blocks_not_zero(values, blocks);
    EXPECT_EQ(blocks, Blocks{static_cast<std::uint32_t>((elements - 1) / kBlockElements)});
    ASSERT_TRUE(pack_blocks(values, blocks, packed)) << elements;
    EXPECT_LE(packed.size(), kBlockElements + 2);
    std::vector<float> other(elements, 7.0f);
    ASSERT_TRUE(unpack_blocks(packed, other));
    EXPECT_EQ(other.back(), 3);
    EXPECT_EQ(other.front(), 7) << "what is not packed stays";
  }
}

TEST(ChangedBlocks, TheSignOfAZeroIsKept) {
  std::vector<float> values(200, 0.0f);
  values[70] = -0.0f;
  Blocks blocks;
  find_blocks_not_zero(values, blocks);
  EXPECT_EQ(blocks, Blocks{1});
}

TEST(ChangedBlocks, NothingIsPackedThatWouldNotBeShorter) {
  std::vector<float> values(4 * kBlockElements), packed;
  std::iota(values.begin(), values.end(), 1.0f);
  Blocks blocks;
  find_blocks_not_zero(values, blocks);
  EXPECT_EQ(blocks.size(), 4u);
  EXPECT_FALSE(pack_blocks(values, blocks, packed));
  EXPECT_TRUE(pack_blocks(std::vector<float>(4, 0.0f), {}, packed));
  EXPECT_FALSE(pack_blocks(std::vector<float>(), {}, packed));
}

TEST(ChangedBlocks, WhatIsNoneIsRefused) {
  std::vector<float> values(3 * kBlockElements, 0.0f), packed;
  values[0] = values[150] = 1;
  Blocks blocks;
  find_blocks_not_zero(values, blocks);
  ASSERT_TRUE(pack_blocks(values, blocks, packed));
  EXPECT_FALSE(unpack_blocks({}, values));
  for (std::size_t length = 1; length < packed.size(); ++length) {
    EXPECT_FALSE(unpack_blocks(std::span(packed).first(length), values)) << length;
  }
  std::vector<float> shorter(2 * kBlockElements);
  EXPECT_FALSE(unpack_blocks(packed, shorter)) << "its third block is not there";
}

TEST(ChangedBlocks, TellsWhichBlocksHaveChangedSinceAVersion) {
  std::vector<float> values(5 * kBlockElements, 1.0f);
  ChangedBlocks changed;
  Blocks blocks;
  EXPECT_FALSE(changed.since(0, blocks)) << "it has not begun";
  changed.begin(values, 10);
  EXPECT_FALSE(changed.since(9, blocks)) << "what was before is not known";
  values[0] = 2;
  changed.update(values, 11);
  values[4 * kBlockElements] = 2;
  changed.update(values, 12);
  changed.update(values, 13);
  ASSERT_TRUE(changed.since(10, blocks));
  EXPECT_EQ(blocks, (Blocks{0, 4}));
  ASSERT_TRUE(changed.since(11, blocks));
  EXPECT_EQ(blocks, Blocks{4});
  ASSERT_TRUE(changed.since(12, blocks));
  EXPECT_EQ(blocks, Blocks{});
}

}  // namespace
}  // namespace lockstep::comm
