#include "io/datasets/block_cache.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(BlockCache, KeepsWhatWasUsedLast) {
  BlockCache cache(300);
  int reads = 0;
  const auto get = [&](std::int64_t block) {
    const auto data = cache.get({0, 0, block}, [&] {
      ++reads;
      return std::vector<std::byte>(100, static_cast<std::byte>(block));
    });
    EXPECT_EQ(data->at(99), static_cast<std::byte>(block));
  };
  for (const std::int64_t block : {1, 2, 3, 1, 2, 3}) get(block);
  EXPECT_EQ(reads, 3);
  get(1);
  get(4);  // 2 was used longest ago
  get(1);
  get(3);
  EXPECT_EQ(reads, 4);
  get(2);
  EXPECT_EQ(reads, 5);
  EXPECT_THROW(cache.get({0, 1, 1}, []() -> std::vector<std::byte> { throw std::runtime_error("unreadable"); }),
               std::runtime_error);
  get(2);
  EXPECT_EQ(reads, 5);
}

TEST(BlockCache, HoldsOneBlockHoweverLarge) {
  BlockCache cache(10);
  const auto block = cache.get({0, 0, 0}, [] { return std::vector<std::byte>(1000); });
  EXPECT_EQ(block->size(), 1000U);
}

}  // namespace
}  // namespace lockstep::io
