/// bench agree compares modes of agreement: options, ranking, reports.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/bench/agree_report.hpp"
#include "app/options/bench_options.hpp"
#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string agree_complaint(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--data", "shards"});
  try {
    parse_bench_agree(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(BenchAgreeOptionsTest, EachModeHasTheCommonOptionsAndItsOwn) {
  const BenchAgreeOptions o =
      parse_bench_agree({"--data", "shards", "--modes", "all; quorum=3 --servers 1 ;local=16", "--batch", "48",
                         "--rates", "0.1,1e-3", "--seeds", "4", "--slow-rank", "3=0.25,0=0.5"});
  ASSERT_EQ(o.modes.size(), 3u);
  EXPECT_EQ(o.modes[1].name, "quorum=3 --servers 1");
  EXPECT_EQ(o.modes[1].train.agree.quorum, 3);
  EXPECT_EQ(o.modes[1].train.agree.servers.count, 1);
  EXPECT_EQ(o.modes[2].train.agree.local_steps, 16);
  EXPECT_EQ(o.modes[0].train.agree.servers.count, 0);
  for (const AgreeCase& mode : o.modes) EXPECT_EQ(mode.train.work.batch, 48);
  EXPECT_THAT(o.rates, ElementsAre(0.1, 1e-3));
  EXPECT_THAT(o.seeds, ElementsAre(4));
  ASSERT_EQ(o.slow.size(), 2u);
  EXPECT_EQ(o.slow[0].rank, 3);
  EXPECT_EQ(o.slow[0].speed, 0.25);
  EXPECT_EQ(o.slow[1].rank, 0);
}

TEST(BenchAgreeOptionsTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(agree_complaint({"--modes", "all; lokal=3"}), AllOf(HasSubstr("lokal=3"), HasSubstr("(mode lokal=3)")));
  EXPECT_EQ(agree_complaint({"--modes", "all;; async"}),
            "--modes has an empty one: semicolons stand between the modes");
  EXPECT_EQ(agree_complaint({"--modes", "all; all"}), "--modes names all twice");
  EXPECT_EQ(agree_complaint({"--modes", "--servers 1"}),
            "--modes: \"--servers 1\" does not begin with all, local=STEPS, quorum=RANKS or async");
  EXPECT_EQ(agree_complaint({"--modes", "all --seed 3"}), "--modes: all --seed 3: the benchmark decides --seed");
  EXPECT_EQ(agree_complaint({"--agree", "async"}), "--agree: name the ways to agree in --modes");
  EXPECT_EQ(agree_complaint({"--seed", "3"}), "--seed: name the seeds in --seeds");
  EXPECT_EQ(agree_complaint({"--resume"}), "the benchmark decides --resume itself");
  EXPECT_THAT(agree_complaint({"--rates", "0.1,fast"}), HasSubstr("has no number above 0 in \"fast\""));
  EXPECT_THAT(agree_complaint({"--rates", "0.1,0.1"}), HasSubstr("names one twice"));
  EXPECT_THAT(agree_complaint({"--slow-rank", "3"}), HasSubstr("is not RANK=SPEED"));
  EXPECT_THAT(agree_complaint({"--slow-rank", "3=1"}), HasSubstr("is not RANK=SPEED"));
  EXPECT_THAT(agree_complaint({"--slow-rank", "3=0.1,3=0.2"}), HasSubstr("names rank 3 twice"));
  EXPECT_EQ(agree_complaint({"--csv", "rows", "--svg", "rows"}),
            "--csv and --svg are both rows: give them files of their own");
}

/// Validations every 10 steps of 10 samples and one second, with these losses; the metric is 1 - loss.
AgreeTraining training(std::size_t mode, std::int64_t seed, const std::vector<double>& losses, double pace = 1) {
  AgreeTraining made{.mode = mode, .rate = 0.5, .seed = seed};
  for (const double loss : losses) {
    const auto number = static_cast<double>(made.validations.size() + 1);
    made.validations.push_back({.step = static_cast<std::int64_t>(10 * number),
                                .samples = 100 * number,
                                .seconds = pace * number,
                                .loss = loss,
                                .metric = 1 - loss});
  }
  return made;
}

AgreeSetting setting(std::optional<double> target = {}) {
  return {.modes = {"all", "async --servers 1"},
          .network = "mlp",
          .metric = "accuracy",
          .is_better = std::greater<>(),
          .target = target,
          .workers = 4,
          .global_batch = 10,
          .slow = "rank 3 at 0.2 of its speed"};
}

TEST(AgreeReport, ATargetIsReachedWhereTheMetricIsAsGood) {
  const AgreeTraining its = training(0, 1, {0.5, 0.25, 0.125});
  ASSERT_NE(reached(its, setting(0.75)), nullptr);
  EXPECT_EQ(reached(its, setting(0.75))->step, 20);
  EXPECT_EQ(reached(its, setting(0.9)), nullptr);
  AgreeTraining diverged = its;
  diverged.diverged = true;
  EXPECT_EQ(reached(diverged, setting(0.75)), nullptr);
}

TEST(AgreeReport, TheBestReachesTheTargetFirstElseEndsLowest) {
  std::vector<AgreeTraining> made = {training(0, 1, {0.5, 0.1}), training(0, 2, {0.25, 0.2}),
                                     training(0, 3, {0.1, 0.05})};
  made[2].diverged = true;
  EXPECT_EQ(best_of(made, setting(0.75)).seed, 2);
  EXPECT_EQ(best_of(made, setting()).seed, 1);
  EXPECT_EQ(best_of(made, setting(0.99)).seed, 1) << "nobody reaches it";
}

TEST(AgreeReport, TheTableHasMediansSpreadsAndRatiosToTheFirstMode) {
  const std::vector<AgreeTraining> chosen = {training(0, 1, {0.5, 0.25}, 2), training(0, 2, {0.2, 0.1}, 2),
                                             training(0, 3, {0.5, 0.2}, 2), training(1, 1, {0.5, 0.24}, 1)};
  const std::string timed = format_table(chosen, setting(0.75));
  EXPECT_THAT(timed, HasSubstr("mlp; 4 ranks that train, 10 samples per step; rank 3 at 0.2 of its speed"));
  EXPECT_THAT(timed, AllOf(HasSubstr("s to accuracy 0.75"), HasSubstr("4.00 (2.00 to 4.00)"), HasSubstr("  1.000")));
  EXPECT_THAT(timed, AllOf(HasSubstr("async --servers 1"), HasSubstr(" 2.00 "), HasSubstr("  0.500")));
  const std::string plain = format_table(chosen, setting());
  EXPECT_THAT(plain, AllOf(HasSubstr("loss at the end"), HasSubstr("0.2000 (0.1000 to 0.2500)"), HasSubstr("  1.200")));
  EXPECT_THAT(format_table(chosen, setting(0.99)), AllOf(HasSubstr("never"), HasSubstr("  -")));
}

TEST(AgreeReport, RowsHaveEveryValidationAndWhatIsChosen) {
  const std::vector<AgreeTraining> all = {training(0, 1, {0.5}), training(1, 2, {0.25})};
  EXPECT_EQ(format_csv(all, {all[1]}, setting()),
            "mode,learning_rate,seed,chosen,step,samples,seconds,loss,accuracy\n"
            "\"all\",0.5,1,0,10,100,1.000000,0.5,0.5\n"
            "\"async --servers 1\",0.5,2,1,10,100,1.000000,0.25,0.75\n");
  const std::vector<io::MetricRecord> records = to_records(all, {all[1]}, setting());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(io::to_json_line(records[1]),
              AllOf(HasSubstr("\"mode\":\"async --servers 1\""), HasSubstr("\"chosen\":1")));
}

TEST(AgreeReport, ThePictureHasTheTrainingOfTheMiddleOfEachMode) {
  const std::vector<AgreeTraining> chosen = {training(0, 1, {0.5, 0.25}), training(1, 1, {0.5, 0.3})};
  const std::string svg = format_svg(chosen, setting());
  EXPECT_THAT(svg, AllOf(HasSubstr("equal samples"), HasSubstr("equal seconds"), HasSubstr("async --servers 1")));
  EXPECT_THAT(format_svg({chosen[0]}, setting()), Not(HasSubstr("async")));
}

}  // namespace
}  // namespace lockstep::app
