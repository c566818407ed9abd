#include "app/bench_all_reduce.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string complaint(const std::vector<std::string>& arguments) {
  try {
    parse_bench_all_reduce(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(BenchAllReduceOptionsTest, TakesSizesInElements) {
  const BenchAllReduceOptions defaults = parse_bench_all_reduce({});
  EXPECT_EQ(defaults.min, 2);
  EXPECT_EQ(defaults.max, 16'777'216);
  const BenchAllReduceOptions o =
      parse_bench_all_reduce({"--min",    "3",        "--max",  "300",         "--factor",   "10",         "--repeat",
                              "4",        "--warmup", "0",      "--csv",       "f.csv",      "--json",     "f.json",
                              "--device", "gpu",      "--ring", "--share-gpu", "--no-graph", "--deadline", "5"});
  EXPECT_EQ(o.min, 3);
  EXPECT_EQ(o.max, 300);
  EXPECT_EQ(o.factor, 10);
  EXPECT_EQ(o.repeat, 4);
  EXPECT_EQ(o.warmup, 0);
  EXPECT_EQ(o.csv, "f.csv");
  EXPECT_EQ(o.json, "f.json");
  EXPECT_EQ(o.execution.device, "gpu");
  EXPECT_TRUE(o.execution.ring);
  EXPECT_TRUE(o.execution.share_gpu);
  EXPECT_FALSE(o.execution.graphs);
  EXPECT_EQ(o.execution.deadline, 5);
}

TEST(BenchAllReduceOptionsTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(complaint({"--min", "10", "--max", "9"}), "--min 10 is more than --max 9");
  EXPECT_EQ(complaint({"--csv", "rows", "--json", "rows"}),
            "--csv and --json are both rows: give them files of their own");
  EXPECT_THAT(complaint({"--min", "0"}), HasSubstr("--min: 0 must be at least 1"));
  EXPECT_THAT(complaint({"--factor", "1"}), HasSubstr("--factor: 1 must be at least 2"));
  EXPECT_THAT(complaint({"--repeat", "0"}), HasSubstr("--repeat: 0 must be at least 1"));
  EXPECT_THAT(complaint({"--transport", "nccl"}), HasSubstr("--transport: nccl is not one of"));
  EXPECT_THAT(complaint({"--ring", "--device", "cpu"}),
              HasSubstr("--ring has an effect only with --device auto or gpu"));
}

TEST(BenchAllReduceOptionsTest, HelpFitsTheWidth) {
  try {
    parse_bench_all_reduce({"--help"});
    FAIL();
  } catch (const HelpRequested& help) {
    std::istringstream lines(help.what());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_THAT(help.what(), HasSubstr("Examples"));
  }
}

TEST(BenchSizes, GoFromTheSmallestToTheLargest) {
  EXPECT_THAT(bench_sizes(2, 32, 4), ElementsAre(2, 8, 32));
  EXPECT_THAT(bench_sizes(2, 33, 4), ElementsAre(2, 8, 32, 33));
  EXPECT_THAT(bench_sizes(5, 5, 2), ElementsAre(5));
  EXPECT_THAT(bench_sizes(1, 4'000'000'000, 1'000'000), ElementsAre(1, 1'000'000, 4'000'000'000));
}

TEST(BenchTerms, AddUpToTheSumInAnyOrder) {
  for (const int ranks : {1, 2, 3, 4, 7, 16, 17, 64, 100, 1000}) {
    for (const std::size_t index : {0u, 1u, 2u, 1000u, 99'999u, 16'777'215u, 123'456'789u}) {
      float upward = 0, downward = 0;
      for (int rank = 0; rank < ranks; ++rank) upward += bench_term(index, rank, ranks);
      for (int rank = ranks - 1; rank >= 0; --rank) downward += bench_term(index, rank, ranks);
      EXPECT_EQ(upward, bench_sum(index, ranks)) << index << " of " << ranks;
      EXPECT_EQ(downward, bench_sum(index, ranks)) << index << " of " << ranks;
    }
  }
}

TEST(BenchTerms, DifferFromTheirNeighbours) {
  std::set<float> values;
  for (std::size_t i = 0; i < 1000; ++i) values.insert(bench_sum(i, 2));
  EXPECT_GE(values.size(), 999u);
  // Pieces of sums that lie a piece further on are not the same.
  for (const std::size_t piece : {1u, 64u, 1000u, 15'360u, 65'536u, 1'048'576u, 4'194'304u}) {
    int equal = 0;
    for (std::size_t i = 0; i < 1000; ++i) equal += bench_sum(i, 4) == bench_sum(i + piece, 4) ? 1 : 0;
    EXPECT_LE(equal, 2) << piece;
  }
}

TEST(BenchTerms, WrongSumsAreCounted) {
  std::vector<float> sums(1000);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = bench_sum(i, 3);
  EXPECT_EQ(count_wrong(sums, 3), 0u);
  EXPECT_EQ(count_wrong(sums, 4), 1000u);
  sums[7] += 1;                        // an element that is off
  sums[500] -= bench_term(500, 1, 3);  // a rank that is missing
  std::swap(sums[100], sums[200]);
  EXPECT_EQ(count_wrong(sums, 3), 4u);
  sums[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(count_wrong(sums, 3), 4u);
}

TEST(BenchRows, HaveBandwidths) {
  const AllReduceRow row{.transport = "ring",
                         .ranks = 4,
                         .count = 1'000'000,
                         .seconds = 2e-3,
                         .least_seconds = 1e-3,
                         .sums = 1,
                         .wrong = 0};
  EXPECT_DOUBLE_EQ(row.algorithm_bandwidth(), 2e9);
  EXPECT_DOUBLE_EQ(row.bus_bandwidth(), 3e9);
  EXPECT_EQ(format_row(row), "     4000000     1000000  float32     2000.00     1000.00     2.000     3.000       0");
  EXPECT_EQ(csv_row(row), "ring,4,4000000,1000000,float32,2000.000,1000.000,2.000000,3.000000,0");
  EXPECT_EQ((AllReduceRow{.transport = "serial", .count = 100, .seconds = 1e-6}.bus_bandwidth()), 0);
  EXPECT_EQ((AllReduceRow{.transport = "serial", .count = 100, .seconds = 1e-6}.algorithm_bandwidth()), 0);
  EXPECT_EQ(AllReduceRow{}.bus_bandwidth(), 0);
  const std::vector<AllReduceRow> rows{row, {.transport = "ring", .ranks = 4, .count = 1, .seconds = 1e9}};
  EXPECT_NEAR(mean_bus_bandwidth(rows), 1.5e9, 1);
  EXPECT_EQ(mean_bus_bandwidth({}), 0);
}

}  // namespace
}  // namespace lockstep::app
