#include "comm/host/summation.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

float widened(Bf16 bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// The nearest bfloat16, found by comparing with both neighbours in double.
Bf16 nearest(float value) {
  const auto below = static_cast<Bf16>(std::bit_cast<std::uint32_t>(value) >> 16);
  const auto above = static_cast<Bf16>(below + 1);
  const auto distance = [&](Bf16 bits) {
    // An infinity counts as the next power of two.
    const double neighbour = std::isinf(widened(bits)) ? std::copysign(0x1p128, widened(bits)) : widened(bits);
    return std::abs(static_cast<double>(value) - neighbour);
  };
  if (distance(below) != distance(above)) return distance(below) < distance(above) ? below : above;
  return below % 2 == 0 ? below : above;
}

/// Every upper half with lower halves around the ties, and 37 as the length so that vectors have a tail.
std::vector<float> many_values() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x1'0000; upper += 3) {
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  while (values.size() % 64 != 37) values.push_back(1.5f);
  return values;
}

TEST(RoundingToBf16, IsToTheNearestAndToEven) {
  const std::vector<float> values = many_values();
  std::vector<Bf16> rounded(values.size()), with_errors(values.size());
  std::vector<float> errors(values.size()), in_place = values, in_place_errors(values.size()), plain = values;
  round_to_bf16(rounded.data(), values.data(), nullptr, values.size());
  round_to_bf16(with_errors.data(), values.data(), errors.data(), values.size());
  round_in_place(in_place.data(), in_place_errors.data(), values.size());
  round_in_place(plain.data(), nullptr, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(with_errors[i], rounded[i]) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(in_place[i]), std::uint32_t{rounded[i]} << 16) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(plain[i]), std::uint32_t{rounded[i]} << 16) << values[i];
    ASSERT_EQ(in_place_errors[i], errors[i]) << values[i];
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(widened(rounded[i])));
      ASSERT_EQ(errors[i], 0.0f);
    } else if (std::isinf(values[i])) {
      ASSERT_EQ(widened(rounded[i]), values[i]);
      ASSERT_EQ(errors[i], 0.0f);
    } else {
      ASSERT_EQ(rounded[i], nearest(values[i])) << values[i];
      if (std::isinf(widened(rounded[i]))) {
        ASSERT_EQ(errors[i], 0.0f);
      } else {
        ASSERT_EQ(static_cast<double>(widened(rounded[i])) + errors[i], values[i]);
      }
    }
  }
}

TEST(RoundingToBf16, OfWhatIsRoundedChangesNothing) {
  std::vector<Bf16> all(0x1'0000), again(all.size());
  std::vector<float> values(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Bf16>(i);
  widen(values.data(), all.data(), all.size());
  round_to_bf16(again.data(), values.data(), nullptr, values.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    // A signalling NaN becomes a quiet one, once.
    ASSERT_EQ(again[i], std::isnan(values[i]) ? all[i] | 0x40 : all[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::uint32_t{all[i]} << 16);
  }
}

TEST(RoundingToBf16, TermsAreAddedInFloat) {
  std::vector<float> sum(1001), rounded_terms(sum.size());
  std::vector<Bf16> terms(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = 1.0f + static_cast<float>(i) * 0x1p-20f;
    terms[i] = static_cast<Bf16>(0x3c00 + i);
  }
  std::vector<float> expected = sum;
  widen(rounded_terms.data(), terms.data(), terms.size());
  for (std::size_t i = 0; i < sum.size(); ++i) expected[i] += rounded_terms[i];
  add_to(sum.data(), terms.data(), sum.size());
  EXPECT_EQ(sum, expected);
}

}  // namespace
}  // namespace lockstep::comm
