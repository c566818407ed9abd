/// \file
/// Reports of a running job, tested with invented steps.
#include "app/train/report.hpp"

#include <stdexcept>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReporterTest : public testing::Test {
 protected:
  void SetUp() override {
    output_ = open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(output_, 0);
    options_.every = 2;
    work_.total_steps = 7;
  }
  void TearDown() override { close(output_); }
  std::string text(const char* name) const { return io::read_text(folder_ / name); }
  LogFiles files() const {
    LogFiles made;
    made.metrics = std::make_unique<io::MetricsLog>(folder_ / "metrics.jsonl", false);
    return made;
  }
  static StepFigures figures(std::int64_t step, double loss) {
    return {.step = step,
            .epoch = 0.5,
            .loss_sum = 10 * loss,
            .metric_sum = 4,
            .samples = 10,
            .learning_rate = 0.1,
            .gradient_norm = 2};
  }
  /// Returns the times after `steps` steps of 1 s each: 0.6 s compute, 0.25 s communication and 0.05 s input.
  static TimeSplit time(double steps) {
    return {.input = 0.05 * steps, .compute = 0.6 * steps, .communication = 0.25 * steps, .total = steps};
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  int output_ = -1;
  ReportOptions options_;
  WorkPlan work_;
  std::unique_ptr<model::Network> network_ =
      model::make_network({.name = "linear"}, {.features = 2, .outputs = 3, .image = {}});
  Task classification_{model::LossKind::softmax_cross_entropy, *network_};
  Task regression_{model::LossKind::mean_squared_error, *network_};
};

TEST_F(ReporterTest, ALineIsTheMeanOfTheStepsSinceTheLastOne) {
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, classification_, 2, 0);
  reporter.attach(files());
  const auto l2 = [] { return 0.5; };
  reporter.step(figures(1, 3), time(1), l2);
  EXPECT_EQ(text("output"), "");
  reporter.step(figures(2, 1), time(2), l2);
  EXPECT_THAT(text("output"), AllOf(HasSubstr("step 2/7"), HasSubstr("loss 2.00000  L2 0.5  "),
                                    HasSubstr("accuracy 40.00 %"), HasSubstr("10 samples/s  (5/rank)"),
                                    HasSubstr("input 5.0 %  compute 60 %  communication 25 %  other 10 %")));
  reporter.step(figures(3, 8), time(3), l2);
  reporter.step(figures(4, 8), time(4), l2);
  EXPECT_THAT(text("metrics.jsonl"),
              HasSubstr(R"("kind":"train","step":4,"epoch":0.5,"loss":8.0,"accuracy":0.4,"l2_loss":0.5)"));
}

TEST_F(ReporterTest, ARunThatEndsEarlySaysWhatIsLeftOnce) {
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, regression_, 1, 0);
  const auto l2 = [] { return 0.0; };
  for (int i = 1; i <= 3; ++i) reporter.step(figures(i, i), time(i), l2);
  EXPECT_THAT(text("output"), Not(HasSubstr("step 3/7")));
  reporter.remaining(figures(3, 3), time(3), l2);
  EXPECT_THAT(text("output"),
              AllOf(HasSubstr("step 3/7"), HasSubstr("loss 3.00000"), HasSubstr("mean absolute error 0.4")));
  const std::string before = text("output");
  reporter.remaining(figures(3, 3), time(3), l2);
  EXPECT_EQ(text("output"), before);
}

TEST_F(ReporterTest, TheLastStepIsAlwaysReported) {
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, regression_, 1, 6);
  reporter.step(figures(7, 1), time(1), [] { return 0.0; });
  EXPECT_THAT(text("output"), HasSubstr("step 7/7"));
}

TEST_F(ReporterTest, NothingIsWrittenIntoAFolderThatAnotherProcessTook) {
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, regression_, 1, 0);
  LogFiles files = this->files();
  files.still_owner = [] { throw std::runtime_error("the run belongs to another process now"); };
  reporter.attach(std::move(files));
  reporter.step(figures(1, 1), time(1), [] { return 0.0; });
  EXPECT_THROW(reporter.step(figures(2, 1), time(2), [] { return 0.0; }), std::runtime_error);
  EXPECT_THROW(reporter.evaluation(2, 0.5, {.samples = 3}, false, {.seconds = 0.1}), std::runtime_error);
  EXPECT_EQ(text("output"), "");
  EXPECT_EQ(text("metrics.jsonl"), "");
}

TEST_F(ReporterTest, ShortRunsReportEveryEpoch) {
  options_.every = 0;
  work_.total_steps = 6;
  work_.steps_per_epoch = 2;
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, classification_, 1, 0);
  for (int i = 1; i <= 6; ++i) reporter.step(figures(i, i), time(i), [] { return 0.0; });
  EXPECT_THAT(text("output"),
              AllOf(HasSubstr("step 2/6"), HasSubstr("step 4/6"), HasSubstr("step 6/6"), Not(HasSubstr("step 3/6"))));
  work_.total_steps = 1000;  // 500 epochs: lines by the clock only
  Reporter patient(console, options_, work_, classification_, 1, 0);
  for (int i = 1; i <= 6; ++i) patient.step(figures(i, i), time(i), [] { return 0.0; });
  EXPECT_THAT(text("output"), Not(HasSubstr("/1000")));
}

TEST_F(ReporterTest, AValidationSaysHowTrainingWentInTheStepsBeforeIt) {
  Console console(output_, output_);
  Reporter reporter(console, options_, work_, classification_, 2, 0);
  reporter.attach(files());
  EXPECT_EQ(reporter.summary(), "");
  reporter.start(0, 0);
  for (int i = 1; i <= 3; ++i) reporter.step(figures(i, i), time(i), [] { return 0.0; });
  reporter.evaluation(3, 0.5, {.loss = 1.5, .metric = 0.75, .samples = 8}, false, {.seconds = 0.1});
  EXPECT_THAT(text("output"), HasSubstr("training in the 3 steps before: loss 2  accuracy 40.00 %"));
  EXPECT_THAT(text("metrics.jsonl"), AllOf(HasSubstr(R"("kind":"start","step":0,"epoch":0.0,"ranks":2,"time":"20)"),
                                           HasSubstr(R"("training_loss":2.0,"training_accuracy":0.4)")));
  EXPECT_THAT(reporter.history(), Not(HasSubstr("training_loss")));  // unknown to a resumed launch
  reporter.step(figures(4, 7), time(4), [] { return 0.0; });
  reporter.evaluation(4, 0.5, {.loss = 2.5, .metric = 0.5, .samples = 8}, false, {.seconds = 0.1});
  EXPECT_EQ(reporter.summary(),
            "            step  loss  accuracy\n"
            "training       4     7   40.00 %\n"
            "validation     4   2.5   50.00 %\n"
            "the best       3   1.5   75.00 %\n");
}

TEST(StepFigures, TellWhereOneRankWouldBeFaster) {
  const TimeSplit split{.input = 0.1, .compute = 0.9, .communication = 3, .total = 4};  // one rank alone would need 2 s
  EXPECT_EQ(
      advise_one_rank(split, 2, 1000),
      "one rank would be faster: about 2 ms for a step, in which it computes the parts of all 2 ranks; these took 4 "
      "ms, of which 3 ms went into communication. A larger batch or network uses more ranks better");
  EXPECT_EQ(advise_one_rank(split, 4, 1000), "");  // one rank would take as long
  EXPECT_EQ(advise_one_rank(split, 1, 1000), "");
  EXPECT_EQ(advise_one_rank(split, 2, 10), "");  // too few steps
}

TEST(StepFigures, SayAgainThatBf16WouldBeFaster) {
  const std::string faster = "--precision bf16 would multiply 1.8 times as fast as fp32 here, by AVX512-BF16";
  EXPECT_EQ(advise_precision({.input = 4, .compute = 90, .communication = 6, .total = 100}, faster),
            faster + "; 90 % of the time in steps was computing");
  EXPECT_EQ(advise_precision({.input = 4, .compute = 90, .communication = 6, .total = 100}, ""), "");
  EXPECT_EQ(advise_precision({.input = 60, .compute = 40, .total = 100}, faster), "");  // mostly waits
  EXPECT_EQ(advise_precision({.input = 4, .compute = 45, .total = 50}, faster), "");    // short run
}

TEST_F(ReporterTest, TheSharesOfTimeAddUp) {
  EXPECT_EQ(format_split({.input = 1, .compute = 2, .communication = 3, .total = 10}),
            "input 10.0 %  compute 20 %  communication 30 %  other 40 %");
  EXPECT_EQ(format_split({}), "input 0.0 %  compute 0 %  communication 0 %  other 0 %");
}

}  // namespace
}  // namespace lockstep::app
