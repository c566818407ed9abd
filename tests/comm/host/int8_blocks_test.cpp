/// Floats as 8-bit integers with a scale for each block.
#include "comm/host/int8_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

std::vector<float> some_numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::sin(static_cast<double>(i) * 1.7) *
                                   std::exp2(static_cast<double>(i / kInt8Block % 40) - 20));
  }
  return values;
}

struct Packed {
  std::vector<std::byte> bytes;
  std::vector<float> errors, unpacked;
};
Packed packed(const std::vector<float>& values) {
  Packed result{.bytes = std::vector<std::byte>(Int8Blocks::bytes(values.size())),
                .errors = std::vector<float>(values.size()),
                .unpacked = std::vector<float>(values.size())};
  auto* const blocks = reinterpret_cast<Int8Blocks*>(result.bytes.data());
  pack(blocks, values.data(), result.errors.data(), values.size());
  unpack(result.unpacked.data(), blocks, values.size());
  return result;
}

TEST(Int8Blocks, TakeAByteForEachNumberAndOneForEachBlock) {
  EXPECT_EQ(Int8Blocks::bytes(0), 0u);
  EXPECT_EQ(Int8Blocks::bytes(1), 2u);
  EXPECT_EQ(Int8Blocks::bytes(64), 65u);
  EXPECT_EQ(Int8Blocks::bytes(65), 67u);
  for (const std::size_t bytes : {65, 8192, 61440}) {
    EXPECT_LE(Int8Blocks::bytes(Int8Blocks::elements(bytes)), bytes);
    EXPECT_GT(Int8Blocks::bytes(Int8Blocks::elements(bytes) + kInt8Block), bytes);
  }
}

TEST(Int8Blocks, AreNearTheNumbersAndTellWhatIsMissing) {
  for (const std::size_t count : {1, 63, 64, 65, 1000}) {
    const std::vector<float> values = some_numbers(count);
    const Packed its = packed(values);
    for (std::size_t i = 0; i < count; ++i) {
      float most = 0;
      for (std::size_t k = i / 64 * 64; k < std::min(count, i / 64 * 64 + 64); ++k)
        most = std::max(most, std::abs(values[k]));
      EXPECT_LE(std::abs(values[i] - its.unpacked[i]), most / 127) << i;
      EXPECT_EQ(values[i], its.unpacked[i] + its.errors[i]) << i;
    }
  }
}

TEST(Int8Blocks, OfWhatHasBeenPackedAreTheSameBits) {
  std::vector<float> values = some_numbers(6000);
  for (std::size_t i = 0; i < 127; ++i)
    values[i * 33] = std::ldexp(static_cast<float>(i) + 0.5f, static_cast<int>(i) - 60);
  std::fill(values.begin() + 5000, values.end(), std::numeric_limits<float>::denorm_min());
  values[700] = std::ldexp(1.99f, 127), values[5100] = std::ldexp(1.5f, -120);
  const Packed once = packed(values), twice = packed(once.unpacked);
  EXPECT_EQ(once.bytes, twice.bytes);
  EXPECT_TRUE(std::ranges::all_of(twice.errors, [](float error) { return error == 0; }));
  std::vector<float> here = values, errors(values.size());
  pack_in_place(here.data(), errors.data(), here.size());
  EXPECT_EQ(here, once.unpacked);
  EXPECT_EQ(errors, once.errors);
}

TEST(Int8Blocks, WithANumberThatIsNotFiniteAreNotFinite) {
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::infinity(), Limits::quiet_NaN(), Limits::max()}) {
    std::vector<float> values(192, 1.0f);
    values[70] = bad;
    const Packed its = packed(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(its.unpacked[i]), i / 64 == 1) << i;
      EXPECT_EQ(its.errors[i], 0) << i;
    }
    std::vector<float> here = values;
    pack_in_place(here.data(), nullptr, here.size());
    EXPECT_TRUE(std::isnan(here[127]));
    EXPECT_EQ(here[128], 1.0f);
    EXPECT_EQ(packed(its.unpacked).bytes, its.bytes);
  }
}

TEST(Int8Blocks, AreAddedInFloat) {
  const std::vector<float> values = some_numbers(200);
  const Packed its = packed(values);
  std::vector<float> sum(values.size(), 3.0f);
  add_unpacked(sum.data(), reinterpret_cast<const Int8Blocks*>(its.bytes.data()), sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 3.0f + its.unpacked[i]);
}

}  // namespace
}  // namespace lockstep::comm
