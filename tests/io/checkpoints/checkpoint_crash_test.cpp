// kill -9 at any instant leaves the last good checkpoint. A child writes checkpoints as fast as it can and reports each
// finished step through a pipe; the parent kills it at a random moment and inspects the rest.
#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint_samples.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

struct Kind {
  std::int64_t rows;
  int writers = 1;
};

/// Never returns: it is killed, or exits with 1 if a write fails.
[[noreturn]] void write_for_ever(const fs::path& folder, std::int64_t first, const Kind& kind, int pipe) {
  try {
    const RunFolder run(folder, RunFolder::Open::resume, false);
    CheckpointWriter writer({.folder = run.checkpoints(), .keep = 2, .still_owner = [&] { run.still_owner(); }});
    for (std::int64_t step = first;; ++step) {
      const SampleTensors tensors(step, kind.rows);
      if (kind.writers == 1) {
        writer.write(sample_record(step), tensors.views());
      } else {
        const InParts parts{.writers = kind.writers, .attempt = random_token().substr(0, 8)};
        writer.write(sample_record(step), {}, write_parts(run.checkpoints(), step, tensors, parts));
      }
      if (::write(pipe, &step, sizeof step) != sizeof step) ::_exit(2);
    }
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
  }
  ::_exit(1);
}

struct Outcome {
  std::int64_t last_reported = 0;
  bool killed = false;
};

/// Kills the child `patience` after its first finished step, or after its start.
Outcome run_and_kill(const fs::path& folder, std::int64_t first, const Kind& kind, std::chrono::microseconds patience,
                     bool from_start) {
  Outcome outcome;
  int ends[2];
  if (::pipe(ends) != 0) return outcome;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    write_for_ever(folder, first, kind, ends[1]);
  }
  ::close(ends[1]);
  std::int64_t step = 0;
  if (!from_start && ::read(ends[0], &step, sizeof step) == sizeof step) outcome.last_reported = step;
  std::this_thread::sleep_for(patience);
  ::kill(child, SIGKILL);
  while (::read(ends[0], &step, sizeof step) == sizeof step) outcome.last_reported = step;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  outcome.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  return outcome;
}

constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

/// Sanitizers slow down writes; longer times spread the kills over as many writes.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSlowness = 10;
#else
constexpr int kSlowness = 1;
#endif

void kill_many_times(const Kind& kind, int kills, int most_microseconds, unsigned seed) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  std::mt19937 random(seed);
  std::int64_t last_complete = 0;
  int with_temporary = 0;
  for (int i = 0; i < kills; ++i) {
    const auto patience = std::chrono::microseconds(random() % static_cast<unsigned>(kSlowness * most_microseconds));
    const Outcome outcome = run_and_kill(run, last_complete + 1, kind, patience, i % 3 == 2);
    ASSERT_TRUE(outcome.killed) << "the child must end by our hand, not by an error";
    last_complete = std::max(last_complete, outcome.last_reported);

    const fs::path checkpoints = run / "checkpoints";
    if (!fs::exists(checkpoints)) continue;  // killed before it began
    for (const std::string& name : folder_names(checkpoints)) with_temporary += name.ends_with(".tmp") ? 1 : 0;
    with_temporary += static_cast<int>(orphaned_part_folders(checkpoints, kAnyStep).size());
    std::vector<std::string> rejected;
    const auto newest = newest_checkpoint(checkpoints, rejected);
    EXPECT_TRUE(rejected.empty()) << rejected.front() << " (no file of a final name is ever half written)";
    if (last_complete == 0 && !newest) continue;
    ASSERT_TRUE(newest.has_value());
    EXPECT_GE(newest->record.step, last_complete);
    EXPECT_LE(newest->record.step, last_complete + 1);
    EXPECT_TRUE(same_content(*newest, sample_record(newest->record.step),
                             SampleTensors(newest->record.step, kind.rows).stored));
    if (fs::is_symlink(checkpoints / "latest")) {
      EXPECT_GE(verify_checkpoint(checkpoints / "latest").step, outcome.last_reported);
    }
    last_complete = newest->record.step;
  }
  EXPECT_GT(with_temporary, 0) << "no kill fell into a write: the test did not test";
  const RunFolder owner(run, RunFolder::Open::resume, false);
  const CheckpointWriter writer({.folder = owner.checkpoints(), .keep = 2});
  for (const std::string& name : folder_names(owner.checkpoints())) EXPECT_FALSE(name.ends_with(".tmp")) << name;
  EXPECT_TRUE(orphaned_part_folders(owner.checkpoints(), kAnyStep).empty());
  EXPECT_EQ(part_folders(owner.checkpoints()).size(),
            kind.writers > 1 ? list_checkpoints(owner.checkpoints()).size() : 0);
}

TEST(CheckpointCrash, KillNineLeavesTheLastGoodOneOfSmallOnes) { kill_many_times({.rows = 20}, 60, 15'000, 1); }

TEST(CheckpointCrash, KillNineLeavesTheLastGoodOneOfLargerOnes) { kill_many_times({.rows = 100'000}, 15, 60'000, 2); }

TEST(CheckpointCrash, KillNineLeavesTheLastGoodOneInParts) {
  kill_many_times({.rows = 20, .writers = 3}, 60, 40'000, 3);
}

}  // namespace
}  // namespace lockstep::io
