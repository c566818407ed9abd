/// Small sums that overtake buckets.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "world.hpp"

namespace lockstep::comm {
namespace {

constexpr TransportCase kTwoLevelBlocksThread{
    Transport::two_level, "two_level_in_blocks_with_thread", {0, 0, 1, 1, 2}, true};
constexpr TransportCase kTwoLevelUnevenThread{
    Transport::two_level, "two_level_uneven_with_thread", {0, 1, 1, 1, 1}, true};

/// Values whose sum depends on the order of the additions.
std::vector<double> terms(std::size_t count, int rank) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t mixed = (i * 5 + static_cast<std::uint64_t>(rank) + 1) * 0x9e37'79b9'7f4a'7c15u;
    values[i] = static_cast<double>(mixed >> 11) * (mixed % 7 == 0 ? 1e-9 : 1e-16) - 0.4;
  }
  return values;
}

std::vector<float> bucket(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
  return values;
}

std::size_t wrong_sums(const std::vector<float>& sums, int ranks) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    wrong += sums[i] !=
             static_cast<float>(i % 1000) * static_cast<float>(ranks) + static_cast<float>(ranks * (ranks - 1) / 2);
  }
  return wrong;
}

bool same_bits(const std::vector<double>& one, const std::vector<double>& other) {
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size() * 8) == 0);
}

constexpr std::size_t kSizes[] = {0, 1, 33, 64, 65, 129, 2049, 4097, 16'385, 40'000};

class UrgentSums : public testing::TestWithParam<TransportCase> {};

TEST_P(UrgentSums, HaveTheBitsOfAnyOtherSum) {
  for (const std::optional<AllReduceLimits>& limits :
       {std::optional<AllReduceLimits>(), std::optional(AllReduceLimits::all_by(AllReduceSchedule::ring)),
        std::optional(AllReduceLimits::all_by(AllReduceSchedule::halving))}) {
    const auto communicator = communicator_over(GetParam(), 60, WireFormat::fp32, limits);
    for (const std::size_t count : kSizes) {
      std::vector<double> expected = terms(count, communicator->rank()), alone = expected, beside = expected;
      communicator->all_reduce(expected);
      communicator->join();
      communicator->urgent_all_reduce(alone);
      EXPECT_TRUE(same_bits(alone, expected)) << count << " elements";
      std::vector<float> large = bucket(50'000, communicator->rank());
      communicator->all_reduce(large);
      communicator->urgent_all_reduce(beside);
      EXPECT_TRUE(same_bits(beside, expected)) << count << " elements, beside a bucket";
      communicator->join();
      EXPECT_EQ(wrong_sums(large, communicator->size()), 0u);
    }
  }
}

TEST_P(UrgentSums, FollowEachOtherBesideManyBuckets) {
  const auto communicator = communicator_over(GetParam());
  const int p = communicator->size();
  std::vector<std::vector<float>> buckets(6, bucket(100'003, communicator->rank()));
  for (std::vector<float>& each : buckets) {
    communicator->all_reduce(each);
    for (int i = 0; i < 5; ++i) {
      std::vector<double> sum(129, i + communicator->rank());
      communicator->urgent_all_reduce(sum);
      EXPECT_EQ(sum, std::vector<double>(129, p * i + p * (p - 1) / 2));
    }
  }
  communicator->join();
  for (const std::vector<float>& each : buckets) EXPECT_EQ(wrong_sums(each, p), 0u);
}

/// The thread adds the bucket's time while this one reads: ThreadSanitizer watches.
TEST_P(UrgentSums, BusySecondsMayBeReadBesideABucket) {
  const auto communicator = communicator_over(GetParam());
  std::vector<float> large = bucket(50'000, communicator->rank());
  std::vector<double> sum(129, 1.0);
  communicator->all_reduce(large);
  communicator->urgent_all_reduce(sum);
  const double before = communicator->busy_seconds();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (communicator->busy_seconds() == before && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  communicator->join();
  EXPECT_GT(communicator->busy_seconds(), 0);
}

INSTANTIATE_TEST_SUITE_P(, UrgentSums,
                         testing::Values(kSharedMemory, kRingThread, kTwoLevelThread, kTwoLevelBlocksThread,
                                         kTwoLevelUnevenThread, kMpiThread),
                         case_name);

class Overtaking : public testing::TestWithParam<TransportCase> {};

/// The bucket cannot complete: the last rank adds its part only after the small sums. Without overtaking they would
/// wait for it, and the deadline would name that rank.
TEST_P(Overtaking, DoesNotWaitForABucketThatAPeerWithholds) {
  if (GetParam().transport == Transport::two_level && machines_of(GetParam()) == 1) return;  // nothing travels
  const auto communicator = communicator_over(GetParam(), 5);
  const int p = communicator->size();
  const bool withholds = communicator->rank() == p - 1;
  std::vector<float> first = bucket(500'000, communicator->rank()), second = first;
  if (!withholds) communicator->all_reduce(first), communicator->all_reduce(second);
  for (const std::size_t count : {1, 33, 65, 129, 4097, 16'384}) {
    std::vector<double> sum(count, 1.0 + communicator->rank());
    communicator->urgent_all_reduce(sum);
    EXPECT_EQ(sum, std::vector<double>(count, p * (p + 1) / 2));
  }
  if (withholds) communicator->all_reduce(first), communicator->all_reduce(second);
  communicator->join();
  EXPECT_EQ(wrong_sums(first, p), 0u);
  EXPECT_EQ(wrong_sums(second, p), 0u);
}

INSTANTIATE_TEST_SUITE_P(, Overtaking,
                         testing::Values(kRingThread, kTwoLevelThread, kTwoLevelBlocksThread, kTwoLevelUnevenThread,
                                         kMpiThread),
                         case_name);

}  // namespace
}  // namespace lockstep::comm
