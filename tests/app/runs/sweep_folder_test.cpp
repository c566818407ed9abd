/// Claims of a sweep's trainings: one holder at a time, and none that waits for the dead.
#include "app/runs/sweep_folder.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <tuple>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

constexpr SweepTask kTask{.rung = 0, .setting = 3};

class SweepFolderTest : public testing::Test {
 protected:
  /// A claim of a process that this one is told about, silent for so many seconds.
  void leave_claim(const std::string& text, double silent) const {
    fs::create_directories(folder_ / "sweep");
    std::ofstream(claim_) << text;
    age(claim_, silent);
  }
  static void age(const fs::path& file, double silent) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= static_cast<time_t>(silent);
    const timespec times[] = {now, now};
    ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  }
  bool can_claim() const { return SweepFolder(folder_).claim(kTask); }
  /// Claim of a process that has ended at once.
  std::string claim_of_dead() const {
    if (const pid_t child = fork(); child == 0) {
      (new SweepFolder(folder_))->claim(kTask);  // its destructor would release it
      _exit(0);
    } else {
      int status = 0;
      waitpid(child, &status, 0);
    }
    return io::read_whole(claim_).value_or("");
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path claim_ = folder_ / "sweep" / "rung-1-setting-3.claim";
};

class ClaimsLeft : public SweepFolderTest {
 protected:
  void SetUp() override {
    other_ = io::this_process();
    other_.boot += "-of-another-kernel";
  }
  io::ProcessIdentity other_;
};

TEST_F(SweepFolderTest, AClaimIsOfOneProcessUntilItIsReleased) {
  SweepFolder one(folder_), other(folder_);
  ASSERT_TRUE(one.claim(kTask));
  EXPECT_TRUE(one.holds());
  EXPECT_FALSE(other.claim(kTask));
  one.release();
  EXPECT_FALSE(one.holds());
  EXPECT_TRUE(other.claim(kTask));
  EXPECT_FALSE(one.claim(kTask));
}

TEST_F(SweepFolderTest, TheResultEndsAllClaims) {
  SweepFolder one(folder_);
  ASSERT_TRUE(one.claim(kTask));
  one.release();
  ASSERT_TRUE(one.claim(kTask));
  one.record(kTask, {.line = "--hidden 4", .metric_key = "", .metric = {}, .exit_code = 0});
  one.release();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "sweep")) {
    EXPECT_EQ(entry.path().filename(), "rung-1-setting-3.json");
  }
}

TEST_F(ClaimsLeft, TheClaimOfADeadProcessIsLostAtOnce) {
  EXPECT_NE(claim_of_dead(), "");
  EXPECT_TRUE(can_claim());
}

TEST_F(ClaimsLeft, AProcessWithThePidOfADeadOneDoesNotHoldItsClaim) {
  io::ProcessIdentity before = io::this_process();
  ++before.started;
  leave_claim(to_text(before), 0);
  EXPECT_TRUE(can_claim());
}

TEST_F(ClaimsLeft, AnotherKernelsProcessHoldsItsClaimForTwoMinutes) {
  other_.pid = 1 << 30;  // nobody's here
  leave_claim(to_text(other_), 60);
  EXPECT_FALSE(can_claim());
  age(claim_, 130);
  EXPECT_TRUE(can_claim());
}

TEST_F(ClaimsLeft, AnotherContainersProcessHoldsItsClaimByItsLockOrItsHeartbeat) {
  io::ProcessIdentity elsewhere = io::this_process();
  elsewhere.pid = 1 << 30;
  elsewhere.pid_namespace += 1;
  leave_claim(to_text(elsewhere) + "locked\n", 5);
  EXPECT_FALSE(can_claim()) << "its heart may beat";
  age(claim_, 20);
  {
    const io::Descriptor holder = io::open_file(claim_, O_RDWR, "open");
    ASSERT_EQ(flock(holder.get(), LOCK_EX), 0);
    EXPECT_FALSE(can_claim()) << "it has its lock";
  }
  EXPECT_TRUE(can_claim()) << "nobody has its lock";
}

TEST_F(ClaimsLeft, WithoutLocksAnotherContainersProcessHasTwoMinutes) {
  io::ProcessIdentity elsewhere = io::this_process();
  elsewhere.pid_namespace += 1;
  leave_claim(to_text(elsewhere), 60);
  EXPECT_FALSE(can_claim());
}

TEST_F(ClaimsLeft, ClaimsOfEarlierVersionsAndTornOnesHaveTwoMinutes) {
  for (const std::string text : {"node7 1234", "", "pid 99999999999999999999\nnamespace x\n"}) {
    leave_claim(text, 60);
    EXPECT_FALSE(can_claim()) << text;
    age(claim_, 130);
    EXPECT_TRUE(can_claim()) << text;
    fs::remove_all(folder_ / "sweep");
  }
}

TEST_F(ClaimsLeft, AFutureHeartbeatIsNoSilence) {
  leave_claim(to_text(other_), -3600);
  EXPECT_FALSE(can_claim());
}

TEST_F(SweepFolderTest, WhoWasSilentForTooLongNoticesThatItsTaskIsAnothers) {
  SweepFolder silent(folder_), next(folder_);
  ASSERT_TRUE(silent.claim(kTask));
  age(folder_ / "sweep" / "rung-1-setting-3.claim", 130);
  ASSERT_TRUE(next.claim(kTask));
  EXPECT_FALSE(silent.holds());
  silent.still_here();
  silent.release();
  EXPECT_TRUE(next.holds());
  EXPECT_FALSE(silent.claim(kTask));
}

TEST_F(SweepFolderTest, OfManyThatSeeADeadClaimOneTakesIt) {
  for (int round = 0; round < 20; ++round) {
    const SweepTask task{.rung = round, .setting = 1};
    const fs::path claim = folder_ / "sweep" / ("rung-" + std::to_string(round + 1) + "-setting-1.claim");
    fs::create_directories(folder_ / "sweep");
    std::ofstream(claim) << "dead 1";
    age(claim, 130);
    std::array<int, 2> answers{}, end{};
    ASSERT_EQ(pipe(answers.data()) + pipe(end.data()), 0);
    constexpr int kProcesses = 8;
    for (int i = 0; i < kProcesses; ++i) {
      if (fork() != 0) continue;
      close(end[1]);
      SweepFolder sweep(folder_);
      char none = 0;
      std::ignore = write(answers[1], sweep.claim(task) ? "1" : "0", 1);
      std::ignore = read(end[0], &none, 1);  // until all have answered
      _exit(0);
    }
    std::string said;
    for (char answer = 0; said.size() < kProcesses && read(answers[0], &answer, 1) == 1;) said += answer;
    for (const int descriptor : {answers[0], answers[1], end[0], end[1]}) close(descriptor);
    for (int i = 0; i < kProcesses; ++i) wait(nullptr);
    EXPECT_EQ(std::count(said.begin(), said.end(), '1'), 1) << "round " << round << ": " << said;
  }
}

}  // namespace
}  // namespace lockstep::app
