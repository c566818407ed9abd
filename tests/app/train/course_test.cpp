#include "app/train/course.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/checkpoints/checkpoint_file.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

void see(LossWatch& watch, double loss, int steps) {
  for (int i = 0; i < steps; ++i) watch.saw(loss);
}

TEST(LossWatch, NothingLeapsBeforeAWholeWindowOrWhileTheLossFalls) {
  LossWatch watch;
  for (int i = 0; i < LossWatch::kWindow - 1; ++i) {
    watch.saw(i < 10 ? 1 : 1000);
    EXPECT_FALSE(watch.leaps());
  }
  LossWatch falling;
  for (int i = 0; i < 500; ++i) {
    falling.saw(5.0 / (1 + i));
    EXPECT_FALSE(falling.leaps()) << i;
  }
}

TEST(LossWatch, ALeapIsTwiceTheBestWindowWhereverTheLossBegan) {
  LossWatch watch;
  see(watch, 10, 30);
  see(watch, 3, 30);
  EXPECT_DOUBLE_EQ(watch.best(), 3);
  see(watch, 5.9, LossWatch::kWindow);
  EXPECT_FALSE(watch.leaps());
  see(watch, 6.5, LossWatch::kWindow);
  EXPECT_TRUE(watch.leaps());
  EXPECT_NEAR(watch.mean(), 6.5, 1e-12);
}

TEST(LossWatch, OneBadBatchIsNoLeapAndNeitherIsTheNoiseOfASmallLoss) {
  LossWatch watch;
  see(watch, 2, 100);
  watch.saw(20);
  EXPECT_FALSE(watch.leaps());
  LossWatch small;
  see(small, 2, 100);
  see(small, 0.01, 100);
  see(small, 0.1, 100);  // ten times its minimum, and a twentieth of its start
  EXPECT_FALSE(small.leaps());
  see(small, 0.3, 100);
  EXPECT_TRUE(small.leaps());
}

TEST(Course, ARunWithoutEventsHasTheWholeRateAndItsFirstOptimizer) {
  const Course course = course_of("{\"kind\":\"validation\",\"step\":10,\"accuracy\":0.5}\n");
  EXPECT_EQ(course.roll_backs, 0);
  EXPECT_EQ(course.rate_factor, 1);
  EXPECT_EQ(course.optimizer_since, 0);
}

TEST(Course, TheHistoryTellsWhatItsRecordsSay) {
  std::string history = io::to_json_line(new_optimizer_record(100, "adam")) + "\n";
  history += io::to_json_line(roll_back_record(120, 137, {.roll_backs = 1, .rate_factor = 0.5})) + "\n";
  history += io::to_json_line(roll_back_record(140, 149, {.roll_backs = 2, .rate_factor = 0.25})) + "\n";
  const Course course = course_of(history);
  EXPECT_EQ(course.roll_backs, 2);
  EXPECT_EQ(course.rate_factor, 0.25);
  EXPECT_EQ(course.optimizer_since, 100);
  // A checkpoint of the step that the run goes on from does not contain it.
  EXPECT_EQ(course_of(io::lines_up_to(history, 140)).roll_backs, 1);
  EXPECT_EQ(course_of(io::lines_up_to(history, 100)).optimizer_since, 0);
}

class ReturnToCheckpoint : public ::testing::Test {
 protected:
  /// A run that has seen a validation with `loss` every 10 steps.
  static io::TrainingRecord at(std::int64_t step, double loss = 1) {
    io::TrainingRecord record;
    record.network.kind = record.network.signature = "mlp";
    record.step = step;
    for (std::int64_t s = 10; s <= step; s += 10) {
      record.metrics += io::to_json_line({{"kind", "validation"}, {"step", s}, {"loss", loss}}) + "\n";
    }
    return record;
  }
  std::filesystem::path write(const io::TrainingRecord& record) const {
    const std::filesystem::path file = folder_.path() / io::checkpoint_name(record.step);
    const std::vector<float> values(3);
    const std::vector<io::TensorView> tensors{{.group = "parameters", .name = "w", .shape = {3}, .values = values}};
    io::write_checkpoint(file, record, tensors);
    return file;
  }
  io::TemporaryFolder folder_;
};

TEST_F(ReturnToCheckpoint, TheNewestUpToTheLimitIsTakenAndLaterOnesGo) {
  const auto at_10 = write(at(10)), at_20 = write(at(20)), at_30 = write(at(30));
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 29), at_20);
  EXPECT_TRUE(std::filesystem::exists(at_10));
  EXPECT_FALSE(std::filesystem::exists(at_30));
}

TEST_F(ReturnToCheckpoint, WhereAllAreLaterTheOldestStays) {
  const auto at_20 = write(at(20)), at_30 = write(at(30));
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 17), at_20);
  EXPECT_FALSE(std::filesystem::exists(at_30));
}

TEST_F(ReturnToCheckpoint, AnotherBranchAndDamagedFilesAreNeitherTakenNorRemoved) {
  const auto at_10 = write(at(10)), at_20 = write(at(20, 2)), at_30 = write(at(30, 2)), at_40 = write(at(40));
  std::filesystem::resize_file(at_40, 1000);
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 36), at_10);
  for (const auto& file : {at_20, at_30, at_40}) EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(ReturnToCheckpoint, WithoutCheckpointsThereIsNone) {
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 36), "");
  EXPECT_EQ(return_to_checkpoint(folder_.path() / "none", at(37), 36), "");
}

}  // namespace
}  // namespace lockstep::app
