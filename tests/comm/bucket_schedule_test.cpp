#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "comm/gradient_reducer.hpp"
#include "comm/serial_communicator.hpp"

namespace lockstep::comm {
namespace {

/// One rank that says it is on the ring.
class PretendedRing final : public Communicator {
 public:
  PretendedRing() : Communicator(0, 1) {}
  std::string_view transport_name() const noexcept override { return "ring"; }
  int reductions = 0;

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t) override { return nullptr; }
  void do_all_reduce_sum(std::span<float>) override { ++reductions; }
  void do_all_reduce_sum(std::span<double>) override {}
  void do_reduce_scatter_sum(std::span<float>) override {}
  void do_all_gather(std::span<float>) override {}
  void do_broadcast(std::span<std::byte>, int) override {}
  void do_barrier() override {}
  void do_note_activity(const char*, std::int64_t) noexcept override {}
  void do_begin_long_operation(const char*) override {}
  void do_end_long_operation() noexcept override {}
};

std::vector<std::size_t> bucket_counts(const std::vector<std::size_t>& ends, const Communicator& communicator,
                                       std::size_t bucket_elements = 0) {
  std::vector<std::size_t> counts;
  std::size_t end = 0;
  for (const Slice& bucket : bucket_schedule(ends, communicator, bucket_elements)) {
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
  const SerialCommunicator communicator;
  EXPECT_EQ(bucket_counts({}, communicator), Counts{});
  EXPECT_EQ(bucket_counts({0, 0}, communicator), Counts{});
  EXPECT_EQ(bucket_counts({10, 10, 250, 4 * kMebi}, communicator), Counts{4 * kMebi});
  EXPECT_EQ(bucket_counts({3 * kMebi, 5 * kMebi, 6 * kMebi}, communicator), (Counts{3 * kMebi, 3 * kMebi}));
}

TEST(BucketSchedule, ASliceIsNeverSplit) {
  const SerialCommunicator communicator;
  EXPECT_EQ(bucket_counts({100, 100 + 9 * kMebi, 9 * kMebi + 200}, communicator), (Counts{100, 9 * kMebi, 100}));
}

TEST(BucketSchedule, OnTheRingTheFirstBucketIsSmall) {
  const PretendedRing communicator;
  EXPECT_EQ(bucket_counts({kMebi / 8, kMebi / 4, kMebi / 2, kMebi, 5 * kMebi}, communicator),
            (Counts{kMebi / 4, 3 * kMebi / 4, 4 * kMebi}));
}

TEST(BucketSchedule, TheSizeCanBeSet) {
  const PretendedRing communicator;
  EXPECT_EQ(bucket_counts({1, 2, 3, 4, 5, 9, 10}, communicator, 2), (Counts{2, 2, 1, 4, 1}));
  EXPECT_EQ(bucket_counts({1, 2, 3}, communicator, 1), (Counts{1, 1, 1}));
}

TEST(BucketSchedule, SlicesMustAscend) {
  const SerialCommunicator communicator;
  EXPECT_THROW(bucket_schedule(std::array<std::size_t, 2>{5, 4}, communicator), std::invalid_argument);
}

TEST(GradientReducer, RefusesAScheduleThatDoesNotCover) {
  SerialCommunicator communicator;
  std::vector<float> gradients(10);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 9}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 5}, {6, 4}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(communicator, gradients, {{0, 5}, {5, 6}}), std::invalid_argument);
  EXPECT_NO_THROW(GradientReducer(communicator, gradients, {{0, 5}, {5, 5}}));
}

TEST(GradientReducer, ReducesABucketOnceAllOfItIsReady) {
  PretendedRing communicator;
  std::vector<float> gradients(10);
  GradientReducer reducer(communicator, gradients, {{0, 4}, {4, 6}});
  reducer.begin_step();
  EXPECT_THROW(reducer.begin_step(), std::invalid_argument);
  reducer.ready_up_to(3);
  EXPECT_EQ(communicator.reductions, 0);
  reducer.ready_up_to(4);
  EXPECT_EQ(communicator.reductions, 1);
  reducer.ready_up_to(9);
  EXPECT_EQ(communicator.reductions, 1);
  EXPECT_THROW(reducer.ready_up_to(11), std::invalid_argument);
  reducer.finish_step();
  EXPECT_EQ(communicator.reductions, 2);
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(communicator.reductions, 4);
}

}  // namespace
}  // namespace lockstep::comm
