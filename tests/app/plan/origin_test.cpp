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
  EXPECT_EQ(standing.optimizer_since, 0);
}

TEST(Standing, TheHistoryTellsWhatItsRecordsSay) {
  std::string history = io::to_json_line(new_optimizer_record(100, "adam")) + "\n";
  history += io::to_json_line(roll_back_record(120, {.failed_step = 137, .count = 1, .rate_factor = 0.5})) + "\n";
  history += io::to_json_line(roll_back_record(140, {.failed_step = 149, .count = 2, .rate_factor = 0.25})) + "\n";
  const Standing standing = standing_after(history);
  EXPECT_EQ(standing.roll_backs, 2);
  EXPECT_EQ(standing.rate_factor, 0.25);
  EXPECT_EQ(standing.optimizer_since, 100);
  // A checkpoint of the step that the run goes on from does not contain it.
  EXPECT_EQ(standing_after(io::lines_up_to(history, 140)).roll_backs, 1);
  EXPECT_EQ(standing_after(io::lines_up_to(history, 100)).optimizer_since, 0);
  EXPECT_EQ(last_roll_back(history, 120)->failed_step, 137);
  EXPECT_FALSE(last_roll_back(history, 130));
}

}  // namespace
}  // namespace lockstep::app
