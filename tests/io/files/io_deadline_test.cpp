#include "io/files/io_deadline.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

constexpr auto kReading = IoDeadline::Kind::reading, kWriting = IoDeadline::Kind::writing;
const std::filesystem::path kFile = "shard-0.h5", kOther = "log.txt";

/// The messages of a deadline, in order.
class Said {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    said_.push_back(what);
    changed_.notify_all();
  }
  /// Waits for that message; false after a minute, which no healthy machine needs.
  bool wait_for(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1),
                             [&] { return std::find(said_.begin(), said_.end(), what) != said_.end(); });
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> said_;
};

IoDeadline::Handlers into(Said& said) {
  return {.waiting = [&said](const auto& pending) { said.add("waiting: " + pending.file.string()); },
          .resumed = [&said] { said.add("resumed"); },
          .expired =
              [&said](const auto& pending) {
                said.add((pending.kind == kReading ? "reading " : "writing ") + pending.file.string());
              }};
}

TEST(IoDeadline, NamesTheOperationThatDoesNotComeBack) {
  Said said;
  IoDeadline deadline(0.5, into(said));
  const IoDeadline::Operation operation(&deadline, kReading, kFile);
  EXPECT_TRUE(said.wait_for("reading shard-0.h5"));
}

TEST(IoDeadline, LooksAtEachOperationOnItsOwn) {
  Said said;
  IoDeadline deadline(1e9, into(said));
  {
    const IoDeadline::Operation stuck(&deadline, kWriting, kOther);
    std::thread([&] {
      for (int i = 0; i < 1000; ++i) const IoDeadline::Operation quick(&deadline, kReading, kFile);
    }).join();
    ASSERT_TRUE(deadline.latest());
    EXPECT_EQ(deadline.latest()->file, kOther);
    EXPECT_TRUE(said.wait_for("waiting: log.txt"));
  }
  EXPECT_FALSE(deadline.latest());
  EXPECT_TRUE(said.wait_for("resumed"));
  const std::vector<std::string> all = said.all();
  EXPECT_EQ(std::count(all.begin(), all.end(), "waiting: shard-0.h5"), 0);
  EXPECT_EQ(std::count(all.begin(), all.end(), "writing log.txt"), 0) << "its time was not up";
}

TEST(IoDeadline, NamesTheInnermostOfOneThread) {
  Said said;
  IoDeadline deadline(1.5, into(said));
  const IoDeadline::Operation outer(&deadline, kWriting, kFile);
  const IoDeadline::Operation inner(&deadline, kReading, kOther);
  EXPECT_TRUE(said.wait_for("reading log.txt"));
  const std::vector<std::string> all = said.all();
  EXPECT_EQ(std::count(all.begin(), all.end(), "writing shard-0.h5"), 0);
}

TEST(IoDeadline, FindsTheLatestWhateverOrderTheyEndIn) {
  IoDeadline deadline(1e9, {});
  auto first = std::make_unique<IoDeadline::Operation>(&deadline, kReading, kFile);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  auto second = std::make_unique<IoDeadline::Operation>(&deadline, kWriting, kOther);
  auto third = std::make_unique<IoDeadline::Operation>(&deadline, kReading, kFile);
  EXPECT_EQ(deadline.latest()->kind, kReading);
  first.reset();
  third.reset();
  EXPECT_EQ(deadline.latest()->kind, kWriting);
  second.reset();
  EXPECT_FALSE(deadline.latest());
}

TEST(IoDeadline, GivesALongOperationItsTime) {
  Said said;
  IoDeadline deadline(0.5, into(said));
  const IoDeadline::Operation checkpoint(&deadline, kWriting, kOther, IoDeadline::seconds_for(1'000'000'000'000));
  {
    const IoDeadline::Operation quick(&deadline, kReading, kFile);
    EXPECT_EQ(deadline.latest()->file, kFile) << "the older one has its time";
    EXPECT_TRUE(said.wait_for("reading shard-0.h5"));
  }
  const std::vector<std::string> all = said.all();
  EXPECT_EQ(std::count(all.begin(), all.end(), "waiting: log.txt"), 0);
}

TEST(IoDeadline, SaysThatAWaitIsOverWhereItsOwnTimeIsOverToo) {
  Said said;
  {
    IoDeadline deadline(60, into(said));
    const IoDeadline::Operation operation(&deadline, kReading, kFile);
    ASSERT_TRUE(said.wait_for("waiting: shard-0.h5"));
  }
  EXPECT_EQ(said.all().back(), "resumed");
}

TEST(IoDeadline, IsNoneWithoutAnObject) { const IoDeadline::Operation operation(nullptr, kReading, kFile); }

TEST(IoDeadline, RefusesOneThatIsNone) {
  EXPECT_THROW(IoDeadline(0, {}), std::invalid_argument);
  EXPECT_THROW(IoDeadline(-1, {}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
