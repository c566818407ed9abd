#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "comm/gradient_reducer.hpp"
#include "comm/reduction.hpp"

namespace lockstep::comm {
namespace {

/// Takes note of what it is asked for.
class NotingReduction final : public Reduction {
 public:
  std::string_view transport_name() const noexcept override { return "noted"; }
  std::string description() const override { return {}; }
  using Reduction::sum;
  void sum(std::span<float> data, const Wire& wire) override {
    sums.push_back(data.size());
    residuals.push_back(wire.residual.data());
  }
  void sum(std::span<double>) override {}
  void scatter_sum(std::span<float>, const Wire&) override {}
  void gather(std::span<float>) override {}
  void sum_bf16(std::span<std::uint16_t> data) override { wire_sums.push_back(data.size()); }
  void join() override { ++joins; }
  void wait(const char*, std::int64_t) override {}
  double exposed_seconds() const noexcept override { return 0; }
  std::vector<std::size_t> sums, wire_sums;
  std::vector<const float*> residuals;
  int joins = 0;
};

std::vector<std::size_t> bucket_counts(const std::vector<std::size_t>& ends, std::string_view transport,
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
  EXPECT_EQ(bucket_counts({}, "serial"), Counts{});
  EXPECT_EQ(bucket_counts({0, 0}, "serial"), Counts{});
  EXPECT_EQ(bucket_counts({10, 10, 250, 4 * kMebi}, "serial"), Counts{4 * kMebi});
  EXPECT_EQ(bucket_counts({3 * kMebi, 5 * kMebi, 6 * kMebi}, "serial"), (Counts{3 * kMebi, 3 * kMebi}));
}

TEST(BucketSchedule, ASliceIsNeverSplit) {
  EXPECT_EQ(bucket_counts({100, 100 + 9 * kMebi, 9 * kMebi + 200}, "serial"), (Counts{100, 9 * kMebi, 100}));
}

TEST(BucketSchedule, OnTheRingTheFirstBucketIsSmall) {
  EXPECT_EQ(bucket_counts({kMebi / 8, kMebi / 4, kMebi / 2, kMebi, 5 * kMebi, 64 * kMebi}, "ring"),
            (Counts{kMebi / 4, 3 * kMebi / 4, 4 * kMebi, 59 * kMebi}));
}

TEST(BucketSchedule, BetweenHostsABucketHoldsASixteenthOfAllAndHalfOfTheRest) {
  Counts ends;
  for (std::size_t end = kMebi / 8; end <= 32 * kMebi; end += kMebi / 8) ends.push_back(end);
  const Counts counts = bucket_counts(ends, "ring");
  EXPECT_EQ(counts.front(), kMebi / 4);
  EXPECT_EQ(counts[1], 2 * kMebi);
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 2 * kMebi);
  std::size_t left = ends.back();
  for (const std::size_t count : counts) {
    EXPECT_LE(count, std::max(left / 2, kMebi / 4));
    left -= count;
  }
  EXPECT_EQ(counts.back(), kMebi / 4);
  EXPECT_EQ(bucket_counts({kMebi / 4, kMebi / 2, kMebi}, "ring"), (Counts{kMebi / 4, kMebi / 4, kMebi / 2}))
      << "but never less than the first";
}

TEST(BucketSchedule, TheSizeCanBeSet) {
  EXPECT_EQ(bucket_counts({1, 2, 3, 4, 5, 9, 10}, "ring", 2), (Counts{2, 2, 1, 4, 1}));
  EXPECT_EQ(bucket_counts({1, 2, 3}, "ring", 1), (Counts{1, 1, 1}));
}

TEST(BucketSchedule, SlicesMustAscend) {
  EXPECT_THROW(BucketRule("serial", 1, 1).cut(std::array<std::size_t, 2>{5, 4}), std::invalid_argument);
}

TEST(BucketSchedule, BetweenManyRanksBucketsGrow) {
  const Counts ends{kMebi, 4 * kMebi, 8 * kMebi, 12 * kMebi, 200 * kMebi};
  EXPECT_EQ(bucket_counts(ends, "ring", 0, 32), (Counts{kMebi, 3 * kMebi, 4 * kMebi, 4 * kMebi, 188 * kMebi}));
  EXPECT_EQ(bucket_counts(ends, "ring", 0, 64), (Counts{kMebi, 7 * kMebi, 4 * kMebi, 188 * kMebi}));
  EXPECT_EQ(BucketRule("ring", 4, 4).text(), "the first up to 256 KiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule("ring", 4096, 4096).text(), "up to 64 MiB");
  EXPECT_EQ(BucketRule("shared memory", 64, 1).text(), "up to 4 MiB");
  EXPECT_EQ(BucketRule("ring", 64, 64, 1024).text(), "up to 4 KiB, as asked for");
}

TEST(BucketSchedule, OnTwoLevelsTheRingIsThatOfTheMachines) {
  EXPECT_EQ(BucketRule("two-level", 16, 2).text(), "the first up to 256 KiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule("two-level", 64, 8).text(), "the first up to 1 MiB, then up to 4 MiB");
  EXPECT_EQ(BucketRule("two-level", 256, 32).text(), "up to 4 MiB");
  EXPECT_EQ(BucketRule("two-level", 1024, 128).text(), "up to 16 MiB");
  EXPECT_EQ(BucketRule("two-level", 1024, 16).text(), "up to 16 MiB") << "64 lanes a machine";
}

TEST(GradientReducer, HandsEachBucketItsPartOfTheResidual) {
  NotingReduction reduction;
  std::vector<float> gradients(10), residual(10);
  GradientReducer reducer(reduction, gradients, {{0, 4}, {4, 6}}, {.host = {.bf16 = true, .residual = residual}});
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(reduction.residuals, (std::vector<const float*>{residual.data(), residual.data() + 4}));
  EXPECT_THROW(GradientReducer(reduction, gradients, {{0, 10}},
                               {.host = {.bf16 = true, .residual = std::span(residual).first(9)}}),
               std::invalid_argument);
}

TEST(BucketSchedule, NcclWantsLargerBuckets) {
  EXPECT_EQ(bucket_counts({kMebi / 2, kMebi, 9 * kMebi, 17 * kMebi, 49 * kMebi}, "nccl"),
            (Counts{kMebi, 16 * kMebi, 32 * kMebi}));
}

TEST(GradientReducer, RefusesAScheduleThatDoesNotCover) {
  NotingReduction reduction;
  std::vector<float> gradients(10);
  EXPECT_THROW(GradientReducer(reduction, gradients, {{0, 9}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(reduction, gradients, {{0, 5}, {6, 4}}), std::invalid_argument);
  EXPECT_THROW(GradientReducer(reduction, gradients, {{0, 5}, {5, 6}}), std::invalid_argument);
  EXPECT_NO_THROW(GradientReducer(reduction, gradients, {{0, 5}, {5, 5}}));
}

TEST(GradientReducer, ReducesABucketOnceAllOfItIsReady) {
  NotingReduction reduction;
  std::vector<float> gradients(10);
  GradientReducer reducer(reduction, gradients, {{0, 4}, {4, 6}});
  reducer.begin_step();
  EXPECT_THROW(reducer.begin_step(), std::invalid_argument);
  reducer.ready_up_to(3);
  EXPECT_EQ(reduction.sums, Counts{});
  reducer.ready_up_to(4);
  EXPECT_EQ(reduction.sums, Counts{4});
  reducer.ready_up_to(9);
  EXPECT_EQ(reduction.sums, Counts{4});
  EXPECT_THROW(reducer.ready_up_to(11), std::invalid_argument);
  EXPECT_EQ(reduction.joins, 0);
  reducer.finish_step();
  EXPECT_EQ(reduction.sums, (Counts{4, 6}));
  EXPECT_EQ(reduction.joins, 1);
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(reduction.sums, (Counts{4, 6, 4, 6}));
  EXPECT_EQ(reduction.wire_sums, Counts{});
}

TEST(GradientReducer, ANarrowWireIsPackedBucketByBucketAndUnpackedOnce) {
  NotingReduction reduction;
  std::vector<float> gradients(10);
  std::vector<std::uint16_t> buffer(10);
  Counts packed;
  int unpacked = 0;
  const auto wire = [&](std::span<std::uint16_t> where) {
    return Bf16Wire{.buffer = where,
                    .pack = [&](Slice slice) { packed.push_back(slice.offset); },
                    .unpack = [&] { unpacked += reduction.joins; }};
  };
  GradientReducer reducer(reduction, gradients, {{0, 4}, {4, 6}}, {.device = wire(buffer)});
  reducer.begin_step();
  reducer.ready_up_to(4);
  EXPECT_EQ(packed, Counts{0});
  reducer.finish_step();
  EXPECT_EQ(packed, (Counts{0, 4}));
  EXPECT_EQ(reduction.wire_sums, (Counts{4, 6}));
  EXPECT_EQ(reduction.sums, Counts{});
  EXPECT_EQ(unpacked, 1) << "after the join";
  EXPECT_THROW(GradientReducer(reduction, gradients, {{0, 10}}, {.device = wire(std::span(buffer).first(9))}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
