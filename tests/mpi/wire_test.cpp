/// Sums that travel as bfloat16, against the exact ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "comm/summation.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

constexpr double kHalfUlp = 1.0 / 256;  // the most that rounding to 8 significant bits takes, relatively

class Wires : public OverEveryTransport {
 protected:
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  /// Of both signs and 40 magnitudes.
  static double value(std::size_t i, int rank) {
    std::uint64_t bits = (i * 64 + static_cast<std::size_t>(rank) + 1) * 0x9e37'79b9'7f4a'7c15u;
    bits = (bits ^ bits >> 31) * 0xbf58'476d'1ce4'e5b9u;
    const double uniform = static_cast<double>(bits >> 40) * 0x1p-24;
    return std::ldexp(uniform - 0.375, static_cast<int>(i % 40) - 20);
  }

  std::vector<float> values(std::size_t count) const {
    std::vector<float> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<float>(value(i, rank()));
    return result;
  }

  /// Each of the size() roundings takes at most half a unit of the last place of a partial sum; the additions in float
  /// take next to nothing.
  void expect_near_sum(std::span<const float> data, std::size_t first, const std::string& where) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      double sum = 0, magnitude = 0;
      for (int peer = 0; peer < size(); ++peer) {
        sum += value(first + i, peer);
        magnitude += std::abs(value(first + i, peer));
      }
      const double bound = magnitude * (size() * kHalfUlp * 1.02);
      if (std::abs(data[i] - sum) <= bound) continue;
      ADD_FAILURE() << where << ": element " << first + i << " is " << data[i] << ", not " << sum << " +- " << bound;
      return;
    }
  }

  void expect_equal_everywhere(std::span<const float> data) {
    std::vector<std::byte> theirs(data.size_bytes());
    std::memcpy(theirs.data(), data.data(), data.size_bytes());
    communicator_->broadcast(theirs, 0);
    EXPECT_EQ(std::memcmp(theirs.data(), data.data(), data.size_bytes()), 0) << data.size() << " elements";
  }

  std::set<std::size_t> counts() const {
    const auto p = static_cast<std::size_t>(size());
    return {0, 1, p - 1, p, p + 1, 129, 1000, 61'440, p * 30'720 + 1, 100'000};
  }
};

TEST_P(Wires, RoundedSumsAreWithinTheBoundAndEqualEverywhere) {
  for (const std::size_t count : counts()) {
    std::vector<float> data = values(count), residual(count);
    communicator_->all_reduce_sum(data, {.bf16 = true});
    expect_near_sum(data, 0, "all-reduce");
    if (count > 0) expect_equal_everywhere(data);
    std::vector<float> again = values(count);
    communicator_->all_reduce_sum(again, {.bf16 = true, .residual = residual});
    EXPECT_EQ(again, data) << "the first sum with a residual of zero";
    data = values(count);
    communicator_->reduce_scatter_sum(data, {.bf16 = true});
    const Slice own = communicator_->own_slice(count, rank());
    expect_near_sum(std::span(data).subspan(own.offset, own.count), own.offset, "reduce-scatter");
  }
}

TEST_P(Wires, WhatIsGatheredIsNotRounded) {
  std::vector<float> data(100'000, -1.0f);
  const Slice own = communicator_->own_slice(data.size(), rank());
  for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] = 1.0f + static_cast<float>(i) * 0x1p-23f;
  communicator_->all_gather(data);
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 1.0f + static_cast<float>(i) * 0x1p-23f);
}

TEST_P(Wires, OnlyWhatLeavesTheHostIsRounded) {
  std::vector<float> data = values(50'000), exact = data;
  communicator_->all_reduce_sum(data, {.bf16 = true});
  communicator_->all_reduce_sum(exact);
  const bool rounds = communicator_->uses_network();
  std::size_t rounded = 0;
  for (const float sum : data) rounded += (std::bit_cast<std::uint32_t>(sum) & 0xffff) == 0;
  EXPECT_EQ(rounded == data.size(), rounds) << rounded << " of " << data.size();
  EXPECT_EQ(data == exact, !rounds);
}

/// The sum of what comes out of T sums and of what is still kept is the sum of what went in.
TEST_P(Wires, WithFeedbackTheMeanOfManySumsIsExact) {
  if (!communicator_->uses_network()) return;  // nothing is rounded
  constexpr int kSums = 64;
  constexpr std::size_t kCount = 40'000;
  std::vector<float> residual(kCount);
  std::vector<double> with(kCount), without(kCount);
  for (int sum = 0; sum < kSums; ++sum) {
    std::vector<float> data = values(kCount), plain = data;
    // Every other sum in halves: what is kept belongs to the elements, however they travel.
    const Wire wire{.bf16 = true, .residual = residual};
    if (sum % 2 == 0) {
      communicator_->all_reduce_sum(data, wire);
    } else {
      communicator_->reduce_scatter_sum(data, wire);
      communicator_->all_gather(data);
    }
    communicator_->all_reduce_sum(plain, {.bf16 = true});
    for (std::size_t i = 0; i < kCount; ++i) with[i] += data[i], without[i] += plain[i];
  }
  double worst_with = 0, worst_without = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    double sum = 0, magnitude = 0;
    for (int peer = 0; peer < size(); ++peer) sum += value(i, peer), magnitude += std::abs(value(i, peer));
    worst_with = std::max(worst_with, std::abs(with[i] / kSums - sum) / magnitude);
    worst_without = std::max(worst_without, std::abs(without[i] / kSums - sum) / magnitude);
  }
  EXPECT_LT(worst_with, size() * kHalfUlp * 1.1 / kSums);
  EXPECT_GT(worst_without, kHalfUlp / 2);
}

TEST_P(Wires, InfinitiesAndNansComeThroughAndLeaveNothingBehind) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> residual(1000);
  for (int sum = 0; sum < 2; ++sum) {
    std::vector<float> data(1000, 1.0f);
    const bool odd = rank() == size() - 1, first = sum == 0;
    if (odd && first) {
      data[0] = kInfinity, data[300] = -kInfinity, data[600] = std::nanf("");
      data[999] = std::bit_cast<float>(0x7f80'0001u);  // whose upper half alone would be an infinity
      data[800] = std::numeric_limits<float>::max();
    }
    communicator_->all_reduce_sum(data, {.bf16 = true, .residual = residual});
    const auto ones = static_cast<float>(size());
    EXPECT_EQ(data[0], first ? kInfinity : ones);
    EXPECT_EQ(data[300], first ? -kInfinity : ones);
    EXPECT_EQ(std::isnan(data[600]), first);
    EXPECT_EQ(std::isnan(data[999]), first);
    EXPECT_EQ(data[800], !first ? ones : communicator_->uses_network() ? kInfinity : std::numeric_limits<float>::max());
    EXPECT_EQ(data[500], ones);
  }
}

TEST_P(Wires, AResidualIsAsLongAsTheData) {
  std::vector<float> data(1000), residual(999);
  EXPECT_THROW(communicator_->all_reduce_sum(data, {.bf16 = true, .residual = residual}), std::invalid_argument);
  communicator_->barrier();
}

LOCKSTEP_OVER_EVERY_GROUPING(Wires);

}  // namespace
}  // namespace lockstep::comm
