#include "app/bench/scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/bench/scaling_report.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::vector<int> sizes(int ranks, std::vector<std::int64_t> wanted = {}) { return world_sizes(ranks, wanted); }

TEST(WorldSizes, DoubleAndEndWithAll) {
  EXPECT_THAT(sizes(1), ElementsAre(1));
  EXPECT_THAT(sizes(2), ElementsAre(1, 2));
  EXPECT_THAT(sizes(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(sizes(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(sizes(8), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(sizes(1000), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000));
}

TEST(WorldSizes, MayBeChosen) {
  EXPECT_THAT(sizes(8, {5, 2, 5}), ElementsAre(2, 5));
  EXPECT_THROW(sizes(4, {2, 5}), UsageError);
  try {
    sizes(4, {2, 5});
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "--worlds: 5 ranks of 4: start the job with more (mpirun -np 5)");
  }
}

/// Each rank works `work` in every step; all leave together, `communication` after the last.
StepTimes steady(const std::vector<double>& work, double communication, std::size_t steps = 4, double input = 0) {
  StepTimes times{.ranks = static_cast<int>(work.size()), .cells = {}};
  const double end = *std::max_element(work.begin(), work.end()) + communication;
  for (std::size_t i = 0; i < steps; ++i) {
    for (const double own : work) times.cells.push_back({.total = end, .input = input, .exposed = end - own});
  }
  return times;
}

TEST(Split, BooksWaitingForAStragglerAsWaitingNotAsCommunication) {
  const StepShare share = split(steady({10, 10, 14, 10}, 1));
  EXPECT_DOUBLE_EQ(share.step(), 15);
  EXPECT_DOUBLE_EQ(share.compute, 11);
  EXPECT_DOUBLE_EQ(share.waiting, 3);
  EXPECT_DOUBLE_EQ(share.communication, 1);
  EXPECT_DOUBLE_EQ(share.input, 0);
}

TEST(Split, TakesInputOutOfTheWork) {
  const StepShare share = split(steady({10, 10}, 2, 3, 4));
  EXPECT_DOUBLE_EQ(share.input, 4);
  EXPECT_DOUBLE_EQ(share.compute, 6);
  EXPECT_DOUBLE_EQ(share.communication, 2);
  EXPECT_DOUBLE_EQ(share.waiting, 0);
}

TEST(Split, DoesNotCompareClocks) {
  // A rank whose clock began at another time, or that left the preceding step a little later, measures its own
  // durations.
  StepTimes times = steady({10, 12}, 1, 2);
  times.cells[0].total += 0.5;
  times.cells[0].exposed += 0.5;
  times.cells[2].total -= 0.5;
  times.cells[2].exposed -= 0.5;
  const StepShare share = split(times);
  EXPECT_DOUBLE_EQ(share.step(), 13);
  EXPECT_DOUBLE_EQ(share.communication, 1);
  EXPECT_DOUBLE_EQ(share.waiting, 1);
}

TEST(Split, RanksThatTakeTurnsMakeNoNegativeCommunication) {
  StepTimes times{.ranks = 2, .cells = {}};
  for (int i = 0; i < 4; ++i) {
    times.cells.push_back({.total = 12, .input = 0, .exposed = i % 2 == 0 ? 0.0 : 2.0});
    times.cells.push_back({.total = 10, .input = 0, .exposed = i % 2 == 0 ? 2.0 : 0.0});
  }
  const StepShare share = split(times);
  EXPECT_GE(share.communication, 0);
  EXPECT_DOUBLE_EQ(share.step(), 11);
}

TEST(Split, OfAWorldOfOneIsAllWork) {
  const StepShare share = split(steady({10}, 0));
  EXPECT_DOUBLE_EQ(share.compute, 10);
  EXPECT_DOUBLE_EQ(share.step(), 10);
}

TEST(Stragglers, AreNamedWithHowMuchAndHowOften) {
  StepTimes times = steady({10, 10, 10, 12}, 1, 8);
  times.cells[3] = times.cells[0];  // in time, for once
  const std::vector<Straggler> late = stragglers(times);
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].rank, 3);
  EXPECT_NEAR(late[0].excess, 0.2, 1e-12);
  EXPECT_EQ(late[0].late_steps, 7);
  EXPECT_EQ(late[0].steps, 8);
  EXPECT_FALSE(late[0].by_input);
}

TEST(Stragglers, AreNoneWhereNobodyStandsOut) {
  EXPECT_THAT(stragglers(steady({10, 10.2, 10.1, 10}, 5)), IsEmpty());
  EXPECT_THAT(stragglers(steady({10}, 0)), IsEmpty());
  EXPECT_THAT(stragglers({.ranks = 2, .cells = {}}), IsEmpty());
  // The ranks are late in turns.
  StepTimes times{.ranks = 3, .cells = {}};
  for (int i = 0; i < 9; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      times.cells.push_back({.total = 15, .input = 0, .exposed = i % 3 == rank ? 0.0 : 5.0});
    }
  }
  EXPECT_THAT(stragglers(times), IsEmpty());
}

TEST(Stragglers, OfTwoRanksTheSlowerOne) {
  const std::vector<Straggler> late = stragglers(steady({13, 10}, 1));
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].rank, 0);
}

TEST(Stragglers, WorstFirstAndByInputWhereThatIsIt) {
  StepTimes times = steady({10, 11, 10, 15, 10, 10}, 1);
  for (std::size_t i = 3; i < times.cells.size(); i += 6) times.cells[i].input = 4;
  const std::vector<Straggler> late = stragglers(times);
  ASSERT_THAT(late, SizeIs(2));
  EXPECT_EQ(late[0].rank, 3);
  EXPECT_TRUE(late[0].by_input);
  EXPECT_EQ(late[1].rank, 1);
  EXPECT_FALSE(late[1].by_input);
}

ScalingPoint point(int ranks, std::int64_t samples, const StepTimes& times) {
  ScalingPoint found{.ranks = ranks, .transport = "ring", .samples = samples};
  found.share = split(times);
  found.rate = static_cast<double>(samples) / found.share.step();
  found.behind = stragglers(times);
  for (int rank = 0; rank < ranks; ++rank) found.host_of_rank.push_back(rank < 4 ? "node1" : "node3");
  return found;
}

TEST(Lost, AddsUpToWhatEfficiencyLacks) {
  const ScalingPoint base = point(1, 100, steady({10}, 0));
  for (const ScalingPoint& other : {point(4, 400, steady({10.5, 10.5, 12, 10.5}, 2)),  // weak
                                    point(4, 100, steady({3, 3, 3.2, 3}, 1, 3, 0.5)),  // strong
                                    point(4, 100, steady({2, 2, 2, 2}, 0.1))}) {       // better than ideal
    const StepShare gone = lost(other, base);
    EXPECT_NEAR(gone.step(), 1 - efficiency(other, base), 1e-12);
  }
  const StepShare weak = lost(point(2, 200, steady({10, 10}, 2.5)), base);
  EXPECT_NEAR(weak.communication, 0.2, 1e-12);
  EXPECT_NEAR(weak.compute, 0, 1e-12);
}

TEST(Lost, LeavesOutWhatTheBaseHadAlready) {
  const ScalingPoint base = point(2, 200, steady({10, 10}, 2));
  const StepShare gone = lost(point(4, 400, steady({10, 10, 10, 10}, 3)), base);
  EXPECT_NEAR(gone.communication, 1.0 / 13, 1e-12);
  EXPECT_NEAR(gone.step(), 1.0 / 13, 1e-12);
}

TEST(Explanation, IsOneSentenceWithTheLargestLossFirst) {
  const ScalingPoint base = point(1, 100, steady({91}, 0));
  StepTimes times = steady({92, 92, 92, 92, 92, 94.2, 92, 92}, 5.8);
  ScalingPoint of8 = point(8, 800, times);
  EXPECT_EQ(explain(of8, base),
            "At 8 ranks 91 % efficiency: 6 % exposed communication, 2 % waiting for the slowest rank (not the same one "
            "from step to step), 1 % compute (slower than at 1 rank: shared memory bandwidth, caches, clocks).");
  of8.behind = {{.rank = 5, .excess = 0.06, .by_input = false, .late_steps = 4, .steps = 4}};
  EXPECT_THAT(explain(of8, base), HasSubstr("2 % waiting for rank 5 on node3, 1 % compute"));
}

TEST(Explanation, TellsOfGainsAndOfNothing) {
  const ScalingPoint base = point(1, 100, steady({100}, 0));
  EXPECT_EQ(explain(point(2, 200, steady({100, 100}, 0.1)), base),
            "At 2 ranks 100 % efficiency: nothing of note is lost.");
  EXPECT_EQ(explain(point(2, 200, steady({96, 96}, 4)), base),
            "At 2 ranks 100 % efficiency: 4 % exposed communication; won back: 4 % in compute.");
  EXPECT_THAT(explain(point(2, 100, steady({60, 60}, 0)), base),
              HasSubstr("17 % compute (smaller parts of the batch are less efficient)"));
}

TEST(StragglerText, NamesRankHostAmountAndSteps) {
  ScalingPoint of8 = point(8, 800, steady({10, 10, 10, 10, 10, 11.2, 10, 10}, 1));
  EXPECT_EQ(name_stragglers(of8), "rank 5 on node3 works 12 % longer than the others (in 4 of 4 steps; compute)");
  of8 = point(8, 800, steady({10, 10, 10, 10, 10, 12, 11, 11}, 1));
  EXPECT_EQ(name_stragglers(of8),
            "rank 5 on node3 works 20 % longer than the others (in 4 of 4 steps; compute); late, too: ranks 6-7 on "
            "node3");
  EXPECT_EQ(name_stragglers(point(2, 2, steady({10, 10}, 1))), "");
}

TEST(HostText, GathersTheRanksOfEachHost) {
  const std::vector<std::string> hosts{"a", "b", "a", "b", "b"};
  EXPECT_EQ(name_hosts(hosts), "a (ranks 0,2), b (ranks 1,3-4)");
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("n" + std::to_string(i));
  EXPECT_THAT(name_hosts(many), HasSubstr("n7 (rank 7), 12 more hosts"));
}

TEST(BusBandwidth, IsWhatEachRankMustSend) {
  ScalingPoint of4 = point(4, 4, steady({1, 1, 1, 1}, 1));
  of4.gradient_bytes = 8e9;
  of4.all_reduce_seconds = 2;
  EXPECT_DOUBLE_EQ(of4.bus_bandwidth(), 6e9);
  of4.ranks = 1;
  EXPECT_DOUBLE_EQ(of4.bus_bandwidth(), 0);
}

class ScalingReportTest : public testing::Test {
 protected:
  std::vector<ScalingCurve> curves_{
      {.kind = "weak", .points = {point(1, 100, steady({0.01}, 0)), point(2, 200, steady({0.0105, 0.0125}, 0.002))}},
      {.kind = "strong", .points = {point(1, 100, steady({0.01}, 0)), point(2, 100, steady({0.005, 0.005}, 0.001))}}};
  ScalingSetting setting_{
      .network = "784-10", .backend = "cpu", .optimizer = "sgd", .input = "memory", .batch = 100, .rounds = 3};
};

TEST_F(ScalingReportTest, TableHasARowForEachWorldAndFitsTheWidth) {
  const std::string text = format_table(curves_[0]);
  EXPECT_THAT(text, HasSubstr("weak scaling: 100 samples per rank and step\n"));
  EXPECT_THAT(text, HasSubstr("Of 2 ranks: rank 1 on node1 works 19 % longer than the others"));
  EXPECT_THAT(text, HasSubstr("At 2 ranks 69 % efficiency: "));
  EXPECT_THAT(format_table(curves_[1]), HasSubstr("strong scaling: 100 samples per step\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 120 || line.starts_with("At ")) << line;
  }
}

TEST_F(ScalingReportTest, TableOfOneWorldSaysThatThereIsNothingToCompare) {
  curves_[0].points.resize(1);
  EXPECT_THAT(format_table(curves_[0]), HasSubstr("nothing to be compared with"));
}

TEST_F(ScalingReportTest, CsvHasAsManyCellsInEachRow) {
  std::istringstream lines(format_csv(curves_));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_THAT(all, SizeIs(5));
  EXPECT_THAT(all[0], testing::StartsWith("scaling,world,transport,global_batch,step_ms,"));
  for (const std::string& line : all) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), std::count(all[0].begin(), all[0].end(), ',')) << line;
  }
}

TEST_F(ScalingReportTest, JsonHasALineForEachWorld) {
  std::string text;
  for (const io::MetricRecord& record : to_records(curves_, setting_)) text += io::to_json_line(record) + "\n";
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("\"straggler_rank\":1,\"straggler_host\":\"node1\""));
  EXPECT_THAT(text, HasSubstr("\"straggler_rank\":null,\"straggler_host\":null"));
  EXPECT_THAT(text, HasSubstr("\"explanation\":\"At 2 ranks "));
}

TEST_F(ScalingReportTest, PictureHasAChartForTheEfficiencyAndOneForEachCurve) {
  const std::string text = format_svg(curves_, setting_);
  EXPECT_THAT(text, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(text, HasSubstr("height=\"1560\""));
  EXPECT_THAT(text, HasSubstr("<svg y=\"1040\" "));
  EXPECT_THAT(text, HasSubstr("exposed communication"));
  EXPECT_THAT(text, Not(HasSubstr("<?xml")));
}

}  // namespace
}  // namespace lockstep::app
