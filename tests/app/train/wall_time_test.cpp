/// \file
/// Tests of the rule for the last step, and of the sources of the time limit.
#include "app/train/wall_time.hpp"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

// A step fits if there is time for two steps, twice the checkpoint and five seconds for the end.
TEST(LastStep, LeavesTimeForAStepMoreAndForTwoCheckpoints) {
  const Durations longest{.step = 2, .validation = 30, .checkpoint = 7};
  EXPECT_FALSE(is_last_step(23.1, longest, {}));
  EXPECT_TRUE(is_last_step(22.9, longest, {}));
}

TEST(LastStep, CountsWhatFollowsOnTheStep) {
  const Durations longest{.step = 2, .validation = 30, .checkpoint = 7};
  EXPECT_FALSE(is_last_step(53.1, longest, {.validation = true}));
  EXPECT_TRUE(is_last_step(52.9, longest, {.validation = true}));
  EXPECT_FALSE(is_last_step(60.1, longest, {.validation = true, .checkpoint = true}));
  EXPECT_TRUE(is_last_step(59.9, longest, {.validation = true, .checkpoint = true}));
}

// With any schedule of validations and checkpoints, a job that follows the rule ends in time, even if its last
// checkpoint takes twice as long as any before. The unused time is bounded, too.
TEST(LastStep, AJobThatFollowsTheRuleEndsInTime) {
  const Durations longest{.step = 3, .validation = 11, .checkpoint = 8};
  for (const int validate_every : {1, 2, 5, 1000}) {
    for (const int save_every : {1, 3, 7, 1000}) {
      for (double limit = 50; limit < 120; limit += 0.7) {
        double now = 0;
        int step = 0;
        for (bool last = false; !last;) {
          const Ahead ahead{.validation = (step + 1) % validate_every == 0, .checkpoint = (step + 1) % save_every == 0};
          last = is_last_step(limit - now, longest, ahead);
          now += longest.step;
          ++step;
          if (!last && ahead.validation) now += longest.validation;
          if (!last && ahead.checkpoint) now += longest.checkpoint;
        }
        EXPECT_LE(now + 2 * longest.checkpoint, limit) << validate_every << " " << save_every;
        EXPECT_GE(now + 5 * longest.step + longest.validation + 3 * longest.checkpoint, limit);
      }
    }
  }
}

TEST(WallTimeOfAJob, IsNeverUpWithoutALimit) {
  WallTime time;
  time.took_step(1e9);
  time.took_checkpoint(1e9);
  EXPECT_FALSE(time.is_up({.validation = true, .checkpoint = true}));
  EXPECT_EQ(time.reason(), "");
}

TEST(WallTimeOfAJob, GoesByAnEstimateUntilACheckpointHasBeenSeen) {
  WallTime time(100, 60, 0);  // 2 x 60 + 5 s are needed
  EXPECT_TRUE(time.is_up({}));
  EXPECT_EQ(time.reason(), "100 s of the job's time were left, a checkpoint may take 60 s");
  WallTime learnt(100, 60, 0);
  learnt.took_checkpoint(4);
  EXPECT_FALSE(learnt.is_up({}));
}

TEST(WallTimeOfAJob, RemembersTheLongestOfAll) {
  WallTime time(100, 1, 0);
  time.took_checkpoint(50);
  time.took_checkpoint(2);
  EXPECT_TRUE(time.is_up({}));
  EXPECT_THAT(time.reason(), HasSubstr("a checkpoint takes 50 s"));
  WallTime slow(100, 1, 0);
  slow.took_step(49);
  slow.took_step(1);
  EXPECT_TRUE(slow.is_up({}));
}

TEST(WallTimeOfAJob, ExpectsAValidationToTakeItsSharesOfSteps) {
  WallTime time(100, 1, 90);
  time.took_step(1);  // 2 steps, 2 checkpoints, 5: 9 s; a validation of 90 steps: 99
  EXPECT_FALSE(time.is_up({.validation = true}));
  time.took_step(1.1);
  EXPECT_FALSE(time.is_up({}));
  EXPECT_TRUE(time.is_up({.validation = true}));
  EXPECT_TRUE(time.is_up({}));  // stays true
}

/// Clears and restores the environment variables of a Slurm job, and replaces squeue by a script.
class JobTimeTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_END_TIME",
                             "SLURM_RESTART_COUNT", "SLURM_TIME_FORMAT", "PATH"}) {
      const char* const value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      if (std::string(name) != "PATH") unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }
  /// Makes squeue a shell script with these lines.
  void squeue(const std::string& lines) {
    std::ofstream(folder_ / "squeue") << "#!/bin/sh\n" << lines << "\n";
    fs::permissions(folder_ / "squeue", fs::perms::owner_all);
    setenv("PATH", (folder_.string() + ":" + *before_["PATH"]).c_str(), 1);
  }
  static std::string in(int seconds) { return std::to_string(std::time(nullptr) + seconds); }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(JobTimeTest, WithoutSlurmThereIsNoLimit) {
  const JobTime time = find_job_time({.kind = TimeLimit::Kind::scheduler});
  EXPECT_EQ(time.left, std::nullopt);
  EXPECT_EQ(time.problem, "");
  EXPECT_EQ(describe_job(time), "");
}

TEST_F(JobTimeTest, TheUsersLimitComesFirst) {
  setenv("SLURM_JOB_ID", "17", 1);
  setenv("SLURM_JOB_END_TIME", in(1000).c_str(), 1);
  EXPECT_EQ(find_job_time({.kind = TimeLimit::Kind::given, .seconds = 600}).left, 600);
  EXPECT_EQ(find_job_time({.kind = TimeLimit::Kind::none}).left, std::nullopt);
  EXPECT_EQ(describe_job(find_job_time({.kind = TimeLimit::Kind::given, .seconds = 600})),
            "Slurm job 17: it may take 10:00 (--time-limit)");
}

TEST_F(JobTimeTest, SlurmsVariableTells) {
  setenv("SLURM_JOB_ID", "17", 1);
  setenv("SLURM_RESTART_COUNT", "2", 1);
  setenv("SLURM_JOB_END_TIME", in(1000).c_str(), 1);
  squeue("echo 1; touch " + (folder_ / "asked").string());
  const JobTime time = find_job_time({.kind = TimeLimit::Kind::scheduler});
  EXPECT_NEAR(time.left.value_or(0), 1000, 2);
  EXPECT_THAT(describe_job(time),
              AllOf(HasSubstr("Slurm job 17, restart 2: it may take 16:"), HasSubstr("(SLURM_JOB_END_TIME)")));
  EXPECT_FALSE(fs::exists(folder_ / "asked"));
}

TEST_F(JobTimeTest, SqueueTells) {
  setenv("SLURM_JOB_ID", "17", 1);
  setenv("SLURM_TIME_FORMAT", "relative", 1);
  squeue("[ \"$SLURM_TIME_FORMAT\" = %s ] && [ \"$2\" = --jobs=17 ] && echo " + in(500));
  EXPECT_NEAR(find_job_time({.kind = TimeLimit::Kind::scheduler}).left.value_or(0), 500, 2);
  EXPECT_STREQ(std::getenv("SLURM_TIME_FORMAT"), "relative");
}

TEST_F(JobTimeTest, ATaskOfAJobArrayAsksForItself) {
  setenv("SLURM_JOB_ID", "40", 1);  // the last task's: the array's own
  setenv("SLURM_ARRAY_JOB_ID", "40", 1);
  setenv("SLURM_ARRAY_TASK_ID", "3", 1);
  squeue("[ \"$2\" = --jobs=40_3 ] && echo " + in(500));
  const JobTime time = find_job_time({.kind = TimeLimit::Kind::scheduler});
  EXPECT_NEAR(time.left.value_or(0), 500, 2);
  EXPECT_THAT(describe_job(time), HasSubstr("Slurm job 40_3"));
}

TEST_F(JobTimeTest, AJobWithoutAnEndIsNoProblem) {
  setenv("SLURM_JOB_ID", "17", 1);
  squeue("echo NONE");
  EXPECT_EQ(find_job_time({.kind = TimeLimit::Kind::scheduler}).left, std::nullopt);
  EXPECT_EQ(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem, "");
}

TEST_F(JobTimeTest, NoAnswerIsTold) {
  setenv("SLURM_JOB_ID", "17", 1);
  squeue("exit 1");
  const JobTime time = find_job_time({.kind = TimeLimit::Kind::scheduler});
  EXPECT_EQ(time.left, std::nullopt);
  EXPECT_THAT(time.problem, AllOf(HasSubstr("Slurm job 17"), HasSubstr("gives no answer"), HasSubstr("--time-limit")));
  squeue("echo rubbish");
  EXPECT_THAT(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem, HasSubstr("knows no end"));
  setenv("PATH", folder_.c_str(), 1);
  fs::remove(folder_ / "squeue");
  EXPECT_THAT(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem, HasSubstr("gives no answer"));
}

TEST_F(JobTimeTest, AnAnswerIsNotWaitedForForEver) {
  setenv("SLURM_JOB_ID", "17", 1);
  squeue("exec sleep 300");
  const std::time_t begin = std::time(nullptr);
  EXPECT_THAT(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem, HasSubstr("gives no answer"));
  EXPECT_LT(std::time(nullptr) - begin, 60);
}

TEST_F(JobTimeTest, AVariableThatCannotBeRightIsIgnoredAndTold) {
  setenv("SLURM_JOB_END_TIME", in(-1000).c_str(), 1);
  EXPECT_THAT(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem, HasSubstr("in the past"));
  setenv("SLURM_JOB_END_TIME", "soon", 1);
  EXPECT_THAT(find_job_time({.kind = TimeLimit::Kind::scheduler}).problem,
              AllOf(HasSubstr("SLURM_JOB_END_TIME=soon"), HasSubstr("not a number")));
  EXPECT_EQ(find_job_time({.kind = TimeLimit::Kind::scheduler}).left, std::nullopt);
}

}  // namespace
}  // namespace lockstep::app
