/// Sums that travel as bfloat16 or as 8-bit integers, compared with the exact ones.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/host/summation.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

constexpr double kHalfUlp = 1.0 / 256;  // the largest relative error of rounding to 8 significant bits

/// Numbers in memory; a communicator keeps their rounding errors.
class Numbers {
 public:
  Numbers(Communicator& communicator, std::size_t count)
      : memory_(communicator.reduction_memory(std::max<std::size_t>(count, 1) * sizeof(float))),
        numbers_(static_cast<float*>(memory_->allocate(std::max<std::size_t>(count, 1) * sizeof(float), 64)), count) {}
  std::span<float> operator=(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), numbers_.begin());
    return numbers_;
  }
  operator std::span<float>() const { return numbers_; }
  float operator[](std::size_t i) const { return numbers_[i]; }

 private:
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::span<float> numbers_;
};

class Wires : public OverEveryTransport {
 protected:
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  /// By the ring, however small: doubling rounds nothing.
  std::unique_ptr<Communicator> over(WireFormat wire) const {
    return communicator_over(GetParam(), 60, wire, AllReduceLimits::all_by(AllReduceSchedule::ring));
  }

  const std::unique_ptr<Communicator> rounding_ = over(WireFormat::bf16);
  const std::unique_ptr<Communicator> feeding_back_ = over(WireFormat::bf16_feedback);

  static void all_reduce(Communicator& communicator, std::span<float> data) {
    communicator.all_reduce(data);
    communicator.wait();
  }

  /// Values with both signs and 40 magnitudes.
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

  /// Each of the size() roundings changes a partial sum by at most half a unit of its last place; the additions in
  /// float change next to nothing.
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
    communicator_->wait();
    EXPECT_EQ(std::memcmp(theirs.data(), data.data(), data.size_bytes()), 0) << data.size() << " elements";
  }

  std::set<std::size_t> counts() const {
    const auto p = static_cast<std::size_t>(size());
    return {0, 1, p - 1, p, p + 1, 129, 1000, 61'440, p * 30'720 + 1, 100'000};
  }
};

TEST_P(Wires, RoundedSumsAreWithinTheBoundAndEqualEverywhere) {
  for (const std::size_t count : counts()) {
    std::vector<float> data = values(count);
    all_reduce(*rounding_, data);
    expect_near_sum(data, 0, "all-reduce");
    if (count > 0) expect_equal_everywhere(data);
    Numbers again(*feeding_back_, count);
    all_reduce(*feeding_back_, again = values(count));
    EXPECT_TRUE(std::ranges::equal(std::span<float>(again), data)) << "the first sum, when nothing is kept yet";
    data = values(count);
    rounding_->reduce_scatter(data);
    rounding_->wait();
    const Slice own = communicator_->own_slice(count, rank());
    expect_near_sum(std::span(data).subspan(own.offset, own.count), own.offset, "reduce-scatter");
  }
}

TEST_P(Wires, TheFormatIsTheOneAskedForWhereMessagesTravel) {
  const bool rounds = communicator_->uses_network();
  EXPECT_EQ(communicator_->wire_format(), WireFormat::fp32);
  EXPECT_EQ(rounding_->wire_format(), rounds ? WireFormat::bf16 : WireFormat::fp32);
  EXPECT_EQ(feeding_back_->wire_format(), rounds ? WireFormat::bf16_feedback : WireFormat::fp32);
}

TEST_P(Wires, WhatIsGatheredIsNotRounded) {
  std::vector<float> data(100'000, -1.0f);
  const Slice own = communicator_->own_slice(data.size(), rank());
  for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] = 1.0f + static_cast<float>(i) * 0x1p-23f;
  rounding_->all_gather(std::span(data));
  rounding_->wait();
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 1.0f + static_cast<float>(i) * 0x1p-23f);
}

TEST_P(Wires, OnlyWhatLeavesTheHostIsRounded) {
  std::vector<float> data = values(50'000), exact = data;
  all_reduce(*rounding_, data);
  all_reduce(*communicator_, exact);
  const bool rounds = communicator_->uses_network();
  std::size_t rounded = 0;
  for (const float sum : data) rounded += (std::bit_cast<std::uint32_t>(sum) & 0xffff) == 0;
  EXPECT_EQ(rounded == data.size(), rounds) << rounded << " of " << data.size();
  EXPECT_EQ(data == exact, !rounds);
}

/// The results of T sums plus the kept errors equal the sum of the inputs.
TEST_P(Wires, WithFeedbackTheMeanOfManySumsIsExact) {
  if (!communicator_->uses_network()) return;  // nothing is rounded
  constexpr int kSums = 64;
  constexpr std::size_t kCount = 40'000;
  Numbers kept(*feeding_back_, kCount);
  std::vector<double> with(kCount), without(kCount);
  for (int sum = 0; sum < kSums; ++sum) {
    const std::span<float> data = kept = values(kCount);
    // Every other sum goes in halves: the kept errors belong to the elements, however they travel.
    if (sum % 2 == 0) {
      feeding_back_->all_reduce(data);
    } else {
      feeding_back_->reduce_scatter(data);
      feeding_back_->all_gather(data);
    }
    feeding_back_->wait();
    std::vector<float> plain = values(kCount);
    all_reduce(*rounding_, plain);
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

  // Forgotten errors add nothing; neither do those of other memory.
  std::vector<float> fresh = values(kCount);
  all_reduce(*rounding_, fresh);
  all_reduce(*feeding_back_, kept = values(kCount));
  EXPECT_FALSE(std::ranges::equal(std::span<float>(kept), fresh));
  std::vector<float> elsewhere = values(kCount);
  all_reduce(*feeding_back_, elsewhere);
  EXPECT_EQ(elsewhere, fresh);
  feeding_back_->forget_rounding_errors();
  all_reduce(*feeding_back_, kept = values(kCount));
  EXPECT_TRUE(std::ranges::equal(std::span<float>(kept), fresh));
  const auto gathered = feeding_back_->reduction_memory(4096, MemoryUse::gathered);
  const std::span<float> none(static_cast<float*>(gathered->allocate(4096, 64)), 1024);
  for (int sum = 0; sum < 2; ++sum) {
    std::copy_n(values(1024).begin(), 1024, none.begin());
    all_reduce(*feeding_back_, none);
    std::vector<float> small = values(1024);
    all_reduce(*rounding_, small);
    EXPECT_TRUE(std::ranges::equal(none, small)) << sum;
  }
}

/// Sums of numbers of one magnitude as 8-bit integers: a rounding error is a fraction of the largest number of its
/// block.
TEST_P(Wires, EightBitSumsAreNearTheSumEqualEverywhereAndExactInTheMean) {
  const std::unique_ptr<Communicator> eighth = over(WireFormat::int8_feedback);
  EXPECT_EQ(eighth->wire_format(), communicator_->uses_network() ? WireFormat::int8_feedback : WireFormat::fp32);
  const auto number = [](std::size_t i, int rank) { return std::sin(static_cast<double>(i) * 0.37 + rank); };
  const double ranks = size(), bound = ranks * ranks / 127;  // as many roundings, of sums of at most as many ones
  for (const std::size_t count : counts()) {
    constexpr int kSums = 8;
    Numbers kept(*eighth, count);
    std::vector<double> totals(count);
    std::vector<float> own(count);
    for (std::size_t i = 0; i < count; ++i) own[i] = static_cast<float>(number(i, rank()));
    for (int sum = 0; sum < kSums; ++sum) {
      const std::span<float> data = kept = own;
      all_reduce(*eighth, data);
      if (count > 0) expect_equal_everywhere(data.first(count));
      for (std::size_t i = 0; i < count; ++i) totals[i] += data[i];
      for (std::size_t i = 0; i < count && sum == 0; ++i) {
        double exact = 0;
        for (int peer = 0; peer < size(); ++peer) exact += number(i, peer);
        ASSERT_NEAR(data[i], exact, bound) << i << " of " << count;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      double exact = 0;
      for (int peer = 0; peer < size(); ++peer) exact += number(i, peer);
      ASSERT_NEAR(totals[i] / kSums, exact, 1.1 * bound / kSums) << i << " of " << count;
    }
  }
}

TEST_P(Wires, InfinitiesAndNansComeThroughAndLeaveNothingBehind) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Numbers kept(*feeding_back_, 1000);
  for (int sum = 0; sum < 2; ++sum) {
    const std::span<float> data = kept = std::vector<float>(1000, 1.0f);
    const bool odd = rank() == size() - 1, first = sum == 0;
    if (odd && first) {
      data[0] = kInfinity, data[300] = -kInfinity, data[600] = std::nanf("");
      data[999] = std::bit_cast<float>(0x7f80'0001u);  // its upper half alone would be an infinity
      data[800] = std::numeric_limits<float>::max();
    }
    all_reduce(*feeding_back_, data);
    const auto ones = static_cast<float>(size());
    EXPECT_EQ(data[0], first ? kInfinity : ones);
    EXPECT_EQ(data[300], first ? -kInfinity : ones);
    EXPECT_EQ(std::isnan(data[600]), first);
    EXPECT_EQ(std::isnan(data[999]), first);
    EXPECT_EQ(data[800], !first ? ones : communicator_->uses_network() ? kInfinity : std::numeric_limits<float>::max());
    EXPECT_EQ(data[500], ones);
  }
}

LOCKSTEP_OVER_EVERY_GROUPING(Wires);

}  // namespace
}  // namespace lockstep::comm
