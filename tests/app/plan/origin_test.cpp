#include "app/plan/origin.hpp"

#include <string>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

Standing standing_after(const std::string& history) {
  io::TrainingRecord record;
  record.metrics = history;
  return standing_of(record);
}

TEST(Standing, ARunWithoutEventsHasTheWholeRateAndItsFirstOptimizer) {
  const Standing standing = standing_after("{\"kind\":\"validation\",\"step\":10,\"accuracy\":0.5}\n");
  EXPECT_EQ(standing.roll_backs, 0);
  EXPECT_EQ(standing.rate_factor, 1);
  EXPECT_EQ(standing.updates, UpdateClock());
}

TEST(Standing, TheHistoryTellsWhatItsRecordsSay) {
  std::string history = io::to_json_line(new_optimizer_record(100, "adam")) + "\n";
  history += io::to_json_line(roll_back_record(120, {.failed_step = 137, .count = 1, .rate_factor = 0.5})) + "\n";
  history += io::to_json_line(roll_back_record(140, {.failed_step = 149, .count = 2, .rate_factor = 0.25})) + "\n";
  const Standing standing = standing_after(history);
  EXPECT_EQ(standing.roll_backs, 2);
  EXPECT_EQ(standing.rate_factor, 0.25);
  EXPECT_EQ(standing.updates, (UpdateClock{.step = 100, .updates = 0, .per_step = 1}));
  // A checkpoint of the step that the run goes on from does not contain it.
  EXPECT_EQ(standing_after(io::lines_up_to(history, 140)).roll_backs, 1);
  EXPECT_EQ(standing_after(io::lines_up_to(history, 100)).updates, UpdateClock());
  EXPECT_EQ(last_roll_back(history, 120)->failed_step, 137);
  EXPECT_FALSE(last_roll_back(history, 130));
}

TEST(Standing, UpdatesAreCountedAcrossModesThatMakeOthersInAStep) {
  const UpdateClock of_four{.step = 0, .updates = 0, .per_step = 4};
  EXPECT_EQ(of_four.after(20), 80);
  std::string history = io::to_json_line(updates_record(of_four)) + "\n";
  EXPECT_EQ(standing_after(history).updates, of_four);
  const UpdateClock of_one{.step = 20, .updates = 80, .per_step = 1};
  history += io::to_json_line(updates_record(of_one)) + "\n";
  EXPECT_EQ(standing_after(history).updates, of_one);
  EXPECT_EQ(of_one.after(21), 81);
  history += io::to_json_line(new_optimizer_record(30, "adam")) + "\n";
  EXPECT_EQ(standing_after(history).updates, (UpdateClock{.step = 30, .updates = 0, .per_step = 1}));
}

TEST(Standing, AnOlderRunOfServersDoesNotTellItsUpdates) {
  io::TrainingRecord record;
  record.configuration = "batch = 4\nagree = async\nseed = 1\n";
  EXPECT_EQ(standing_of(record).updates.per_step, 0);
  record.configuration = "batch = 4\nagree = quorum=2\nseed = 1\n";
  EXPECT_EQ(standing_of(record).updates.per_step, 1);
}

}  // namespace
}  // namespace lockstep::app
