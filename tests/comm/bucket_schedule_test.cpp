#include <algorithm>
#include <array>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/gradient_reducer.hpp"

namespace lockstep::comm {
namespace {

/// Records its calls.
class NotingCommunicator final : public Communicator {
 public:
  NotingCommunicator() : Communicator(0, 1) {}
  Transport transport() const noexcept override { return Transport::ring; }
  std::vector<std::size_t> sums, scattered, gathered;
  int joins = 0;

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t, MemoryUse) override { return nullptr; }
  void do_all_reduce(std::span<float> data) override { sums.push_back(data.size()); }
  void do_all_reduce(std::span<double>) override {}
  void do_reduce_scatter(std::span<float> data) override { scattered.push_back(data.size()); }
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override {
    gathered.push_back(data.size() / element_bytes);
  }
  void do_broadcast(std::span<std::byte>, int) override {}
  void do_barrier() override {}
  void do_join() override { ++joins; }
  void do_note_activity(const char*, std::int64_t) noexcept override {}
  void do_begin_long_operation(const char*) override {}
  void do_end_long_operation() noexcept override {}
};

std::vector<std::size_t> bucket_counts(const std::vector<std::size_t>& ends, Transport transport,
                                       std::size_t bucket_elements = 0, int ranks = 4) {
  std::vector<std::size_t> counts;
  std::size_t end = 0;
  for (const Slice& bucket : BucketRule(transport, ranks, ranks, bucket_elements).cut(ends)) {
    EXPECT_EQ(bucket.offset, end);
    end += bucket.count;
    counts.push_back(bucket.count);
  }
  EXPECT_EQ(end, ends.empty() ? 0 : ends.back());
  return counts;
}

using Counts = std::vector<std::size_t>;
constexpr std::size_t kMebi = 1024 * 1024 / sizeof(float);

TEST(BucketSchedule, OffTheRingABucketHoldsUpToFourMebibytes) {
  EXPECT_EQ(bucket_counts({}, Transport::serial), Counts{});
  EXPECT_EQ(bucket_counts({0, 0}, Transport::serial), Counts{});
  EXPECT_EQ(bucket_counts({10, 10, 250, 4 * kMebi}, Transport::serial), Counts{4 * kMebi});
  EXPECT_EQ(bucket_counts({3 * kMebi, 5 * kMebi, 6 * kMebi}, Transport::serial), (Counts{3 * kMebi, 3 * kMebi}));
}

TEST(BucketSchedule, ASliceIsNeverSplit) {
  EXPECT_EQ(bucket_counts({100, 100 + 9 * kMebi, 9 * kMebi + 200}, Transport::serial), (Counts{100, 9 * kMebi, 100}));
}

TEST(BucketSchedule, OnTheRingTheFirstBucketIsSmall) {
  EXPECT_EQ(bucket_counts({kMebi / 8, kMebi / 4, kMebi / 2, kMebi, 5 * kMebi, 64 * kMebi}, Transport::ring),
            (Counts{kMebi / 4, 3 * kMebi / 4, 4 * kMebi, 59 * kMebi}));
}

TEST(BucketSchedule, BetweenHostsABucketHoldsA32ndOfAllAndHalfOfTheRest) {
  Counts ends;
  for (std::size_t end = kMebi / 8; end <= 32 * kMebi; end += kMebi / 8) ends.push_back(end);
  const Counts counts = bucket_counts(ends, Transport::ring);
  EXPECT_EQ(counts.front(), kMebi / 4);
  EXPECT_EQ(counts[1], kMebi);
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), kMebi);
  std::size_t left = ends.back();
  for (const std::size_t count : counts) {
    EXPECT_LE(count, std::max(left / 2, kMebi / 4));
    left -= count;
  }
  EXPECT_EQ(counts.back(), kMebi / 4);
  EXPECT_EQ(bucket_counts({kMebi / 4, kMebi / 2, kMebi}, Transport::ring), (Counts{kMebi / 4, kMebi / 4, kMebi / 2}))
      << "but never less than the first";
}

TEST(BucketSchedule, TheSizeCanBeSet) {
  EXPECT_EQ(bucket_counts({1, 2, 3, 4, 5, 9, 10}, Transport::ring, 2), (Counts{2, 2, 1, 4, 1}));
  EXPECT_EQ(bucket_counts({1, 2, 3}, Transport::ring, 1), (Counts{1, 1, 1}));
}

TEST(BucketSchedule, SlicesMustAscend) {
  EXPECT_THROW(BucketRule(Transport::serial, 1, 1).cut(std::array<std::size_t, 2>{5, 4}), std::invalid_argument);
}

TEST(BucketSchedule, BetweenManyRanksBucketsGrow) {
  const Counts ends{kMebi, 4 * kMebi, 8 * kMebi, 12 * kMebi, 200 * kMebi};
  EXPECT_EQ(bucket_counts(ends, Transport::ring, 0, 32), (Counts{kMebi, 3 * kMebi, 4 * kMebi, 4 * kMebi, 188 * kMebi}));
  EXPECT_EQ(bucket_counts(ends, Transport::ring, 0, 64), (Counts{kMebi, 3 * kMebi, 4 * kMebi, 4 * kMebi, 188 * kMebi}));
  EXPECT_EQ(BucketRule(Transport::ring, 4, 4).text(), "the first up to 256 KiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule(Transport::ring, 4096, 4096).text(), "up to 8 MiB");
  EXPECT_EQ(BucketRule(Transport::shared_memory, 64, 1).text(), "up to 4 MiB");
  EXPECT_EQ(BucketRule(Transport::ring, 64, 64, 1024).text(), "up to 4 KiB, as asked for");
}

TEST(BucketSchedule, OnTwoLevelsTheRingIsThatOfTheMachines) {
  EXPECT_EQ(BucketRule(Transport::two_level, 16, 2).text(), "the first up to 256 KiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule(Transport::two_level, 64, 8).text(), "the first up to 1 MiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule(Transport::two_level, 256, 32).text(), "up to 4 MiB");
  EXPECT_EQ(BucketRule(Transport::two_level, 1024, 128).text(), "up to 8 MiB");
  EXPECT_EQ(BucketRule(Transport::two_level, 1024, 16).text(), "up to 8 MiB") << "64 lanes a machine";
}

TEST(BucketSchedule, NcclWantsLargerBuckets) {
  EXPECT_EQ(bucket_counts({kMebi / 2, kMebi, 9 * kMebi, 17 * kMebi, 49 * kMebi}, Transport::nccl),
            (Counts{kMebi, 16 * kMebi, 32 * kMebi}));
}

TEST(GradientReducer, RefusesAScheduleThatDoesNotCover) {
  NotingCommunicator communicator;
  std::vector<float> gradients(10);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 9}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 5}, {6, 4}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 5}, {5, 6}}), std::invalid_argument);
  EXPECT_NO_THROW(GradientReducer(communicator, gradients, {{0, 5}, {5, 5}}));
}

TEST(GradientReducer, ReducesABucketOnceAllOfItIsReady) {
  NotingCommunicator communicator;
  std::vector<float> gradients(10);
  GradientReducer reducer(communicator, gradients, {{0, 4}, {4, 6}});
  reducer.begin_step();
  EXPECT_THROW(reducer.begin_step(), std::invalid_argument);
  reducer.ready_up_to(3);
  EXPECT_EQ(communicator.sums, Counts{});
  reducer.ready_up_to(4);
  EXPECT_EQ(communicator.sums, Counts{4});
  reducer.ready_up_to(9);
  EXPECT_EQ(communicator.sums, Counts{4});
  EXPECT_THROW(reducer.ready_up_to(11), std::invalid_argument);
  EXPECT_EQ(communicator.joins, 0);
  reducer.finish_step();
  EXPECT_EQ(communicator.sums, (Counts{4, 6}));
  EXPECT_EQ(communicator.joins, 1);
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(communicator.sums, (Counts{4, 6, 4, 6}));
}

TEST(GradientReducer, OwnersGetHalvesOfSumsAndBringBackWholeBuckets) {
  NotingCommunicator communicator;
  std::vector<float> gradients(10), weights(10);
  GradientReducer reducer(communicator, gradients, {{0, 4}, {4, 6}}, SumsFor::owners);
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(communicator.scattered, (Counts{4, 6}));
  EXPECT_EQ(communicator.sums, Counts{});
  reducer.gather(weights, 1);
  EXPECT_EQ(communicator.gathered, Counts{6});
  EXPECT_EQ(communicator.joins, 1);
  reducer.finish_gathering();
  EXPECT_EQ(communicator.joins, 2);
  EXPECT_THROW(reducer.gather(std::span(weights).first(9), 0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
