#include "app/bench/bench_input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

InputRow row(const std::string& way, double seconds, double stall = 0) {
  return {.way = way,
          .ranks = 2,
          .samples = 10000,
          .bytes = 8e6,
          .seconds = seconds,
          .quickest_part = 0.9 * seconds,
          .slowest_part = 1.1 * seconds,
          .quickest_rank = 0.5 * seconds,
          .slowest_rank = seconds,
          .slowest = 1,
          .stall = stall};
}

TEST(BenchInput, RatesFollowFromTheSlowestRank) {
  const InputRow r = row("raw reads", 0.5);
  EXPECT_EQ(r.samples_per_second(), 20000);
  EXPECT_EQ(r.bytes_per_second(), 16e6);
  EXPECT_EQ(format_input_row(r),
            "raw reads                                 20,000      16.0       8.0      16.0     10 %        -");
  EXPECT_EQ(row("x", 0).samples_per_second(), 0);
}

TEST(BenchInput, TheCsvHasAValueForEachName) {
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(input_csv_head()), commas(input_csv_row(row("training order + 5 ms a batch", 1))));
}

TEST(BenchInput, SaysWhatLimits) {
  const InputRow raw = row("raw", 1);
  EXPECT_THAT(input_verdict(raw, row("order", 1.25), nullptr, 0, 100, false),
              AllOf(HasSubstr("80 % of raw reads: what limits it is the files themselves"),
                    HasSubstr("less than 12.5 ms a batch, above 8,000 samples/s in all (4,000 a rank)"),
                    Not(HasSubstr("ranks wait"))));
  EXPECT_THAT(input_verdict(raw, row("order", 2), nullptr, 0, 100, true),
              HasSubstr("50 % of raw reads of files that are in memory: what limits it is the picking of samples"));
}

TEST(BenchInput, SaysWhetherComputingWaits) {
  const InputRow raw = row("raw", 1), order = row("order", 1), hidden = row("c", 2, 0.001), bare = row("c", 2, 0.3);
  EXPECT_THAT(input_verdict(raw, order, &hidden, 20, 100, true),
              HasSubstr("With 20 ms of computing a batch, ranks wait 0.1 % of the time: input is not the bottleneck."));
  EXPECT_THAT(input_verdict(raw, order, &bare, 5, 100, true),
              HasSubstr("wait 30.0 % of the time: input is the bottleneck."));
  EXPECT_THAT(input_verdict(raw, order, &bare, 20, 100, true), HasSubstr("share a core"));
}

TEST(BenchInput, ReadsItsOptions) {
  const BenchInputOptions o = parse_bench_input({"--data", "d", "--batch", "7", "--compute-ms", "2.5", "--cold",
                                                 "--repeat", "3", "--steps", "9", "--csv", "a", "--json", "b"});
  EXPECT_EQ(o.train.data.path, "d");
  EXPECT_EQ(o.train.work.batch, 7);
  EXPECT_EQ(o.compute_ms, 2.5);
  EXPECT_TRUE(o.cold);
  EXPECT_EQ(o.repeat, 3);
  EXPECT_EQ(o.steps, 9);
  const auto complaint = [](const std::vector<std::string>& arguments) -> std::string {
    return test::message_of<UsageError>([&] { parse_bench_input(arguments); });
  };
  EXPECT_THAT(complaint({}), HasSubstr("--data is missing"));
  EXPECT_THAT(complaint({"--data", "d", "--repeat", "0"}), HasSubstr("--repeat"));
  EXPECT_THAT(complaint({"--data", "d", "--optimizer", "sgd"}), HasSubstr("unknown option --optimizer"));
}

}  // namespace
}  // namespace lockstep::app
