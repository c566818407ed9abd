#include "io/runs/run_folder.hpp"

#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/small_disk.hpp"
#include "support/message_of.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Open = RunFolder::Open;
namespace fs = std::filesystem;

std::set<std::string> everything_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    names.insert(fs::relative(entry.path(), folder).string());
  }
  return names;
}

TEST(RunFolder, CreatesItsFoldersAndSaysWhoOwnsThem) {
  const TemporaryFolder folder;
  const RunFolder run(folder.path() / "runs" / "a", Open::fresh, false);
  run.still_owner();
  EXPECT_TRUE(fs::is_directory(run.checkpoints()));
  const std::string owner = read_text(run.path() / "owner");
  EXPECT_THAT(owner, AllOf(HasSubstr("host "), HasSubstr("pid " + std::to_string(::getpid())), HasSubstr("since 2"),
                           HasSubstr("token ")));
  EXPECT_EQ(everything_in(run.path()), (std::set<std::string>{"checkpoints", "owner"}));
}

TEST(RunFolder, RefusesToStartAfreshOverARun) {
  for (const std::string made : {"config.ini", "log.txt", "metrics.jsonl", "owner", "events.out.tfevents.1.h.2",
                                 "checkpoints/step-0000000010.h5"}) {
    const TemporaryFolder folder;
    fs::create_directory(folder.path() / "checkpoints");
    write_text(folder.path() / made, "x");
    EXPECT_THAT(
        error_text<FileError>([&] { RunFolder(folder.path(), Open::fresh, false); }),
        AllOf(HasSubstr(folder.path().string()), HasSubstr("--resume"), HasSubstr("--force"), HasSubstr("--run")))
        << made;
    EXPECT_EQ(read_text(folder.path() / made), "x");
  }
}

TEST(RunFolder, AcceptsAFolderWithOtherThings) {
  const TemporaryFolder folder;
  write_text(folder.path() / "notes.txt", "mine");
  write_text(folder.path() / ".owner.12-abcdef.tmp", "left by a start that died");
  const RunFolder run(folder.path(), Open::fresh, false);
  run.still_owner();
  EXPECT_EQ(read_text(folder.path() / "notes.txt"), "mine");
}

TEST(RunFolder, ANewOwnerTidiesUpWhatKilledOnesLeft) {
  for (const Open open : {Open::fresh, Open::resume}) {
    const TemporaryFolder folder;
    for (const char* left : {".owner.12-abcdef.tmp", ".config.ini.9-ab.tmp", ".metrics.jsonl.9-ab.tmp", "notes.tmp"})
      write_text(folder.path() / left, "x");
    const RunFolder run(folder.path(), open, false);
    EXPECT_EQ(everything_in(run.path()), (std::set<std::string>{"checkpoints", "notes.tmp", "owner"}));
  }
}

TEST(RunFolder, IsTakenOverByManyAtOnceAndBelongsToOne) {
  const TemporaryFolder folder;
  constexpr int kTakers = 8;
  std::vector<std::optional<RunFolder>> runs(kTakers);
  {
    std::vector<std::jthread> takers;
    for (auto& run : runs) {
      takers.emplace_back([&] {
        for (int i = 0; i < 5; ++i) run.emplace(folder.path(), Open::resume, false);
      });
    }
  }
  int owners = 0;
  for (const auto& run : runs) {
    try {
      run->still_owner();
      ++owners;
    } catch (const FileError&) {
    }
  }
  EXPECT_EQ(owners, 1);
}

TEST(RunFolder, IsNotTakenOverWhereAFileCannotBeWritten) {
  const auto made_folder = [](const fs::path& file) { fs::create_directory(file); };
  const auto made_link = [](const fs::path& file) { fs::create_symlink("elsewhere", file); };
  const auto made_pipe = [](const fs::path& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0666), 0); };
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> obstacles = {
      {"log.txt", made_folder},       {"log.txt", made_link},       {"log.txt", made_pipe},
      {"metrics.jsonl", made_folder}, {"metrics.jsonl", made_link}, {"metrics.jsonl", made_pipe},
      {"config.ini", made_folder}};
  for (const auto& [name, put] : obstacles) {
    const TemporaryFolder folder;
    const RunFolder first(folder.path(), Open::fresh, false);
    put(folder.path() / name);
    EXPECT_THAT(error_text<FileError>([&] { RunFolder(folder.path(), Open::resume, false); }), HasSubstr(name));
    first.still_owner();
  }
}

TEST(RunFolder, WhoHasTakenARunOverMayStillStartItOver) {
  const TemporaryFolder folder;
  write_text(folder.path() / "log.txt", "of an attempt that came to nothing");
  const RunFolder run(folder.path(), Open::resume, false);
  EXPECT_TRUE(fs::exists(folder.path() / "log.txt"));
  run.start_over();
  EXPECT_EQ(everything_in(run.path()), (std::set<std::string>{"checkpoints", "owner"}));
  const RunFolder successor(folder.path(), Open::resume, false);
  EXPECT_THAT(error_text<FileError>([&] { run.start_over(); }), HasSubstr("belongs to another process"));
}

TEST(RunFolder, ForceRemovesWhatARunMadeAndNothingElse) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder.path() / "checkpoints";
  fs::create_directories(checkpoints / "step-7.h5");  // a folder: not ours
  fs::create_directories(folder.path() / "events.out.tfevents.mine");
  for (const char* ours : {"config.ini", "log.txt", "metrics.jsonl", "owner", "events.out.tfevents.1.h.2",
                           ".config.ini.9-ab.tmp", "checkpoints/step-0000000010.h5", "checkpoints/step-5.h5"}) {
    write_text(folder.path() / ours, "x");
  }
  fs::create_symlink("step-0000000010.h5", checkpoints / "latest");
  const std::set<std::string> foreign = {
      "notes.txt",  "config.ini.bak", "checkpoints/best.h5", "checkpoints/step-x.h5", "checkpoints/step-10.h5.bak",
      ".hidden.tmp"};
  for (const std::string& theirs : foreign) write_text(folder.path() / theirs, "x");

  const RunFolder run(folder.path(), Open::fresh, true);
  std::set<std::string> expected = foreign;
  expected.insert({"checkpoints", "checkpoints/step-7.h5", "events.out.tfevents.mine", "owner"});
  EXPECT_EQ(everything_in(folder.path()), expected);
  run.still_owner();
}

TEST(RunFolder, ResumeKeepsEverythingAndAlsoStartsFromNothing) {
  const TemporaryFolder folder;
  { const RunFolder run(folder.path() / "new", Open::resume, false); }
  write_text(folder.path() / "new" / "metrics.jsonl", "{}\n");
  const RunFolder run(folder.path() / "new", Open::resume, false);
  run.still_owner();
  EXPECT_EQ(read_text(run.path() / "metrics.jsonl"), "{}\n");
}

TEST(RunFolder, SuccessorTakesOver) {
  const TemporaryFolder folder;
  for (const auto& [open, overwrite] : {std::pair(Open::resume, false), std::pair(Open::fresh, true)}) {
    const fs::path path = folder.path() / (overwrite ? "forced" : "resumed");
    const RunFolder first(path, Open::fresh, false);
    first.write_text("config.ini", "first");
    std::optional<RunFolder> second;
    second.emplace(path, open, overwrite);
    second->write_text("config.ini", "second");
    EXPECT_THAT(error_text<FileError>([&] { first.still_owner(); }),
                AllOf(HasSubstr("another process"), HasSubstr("host "), HasSubstr("since ")));
    EXPECT_THROW(first.write_text("config.ini", "first again"), FileError);
    second->still_owner();
    EXPECT_EQ(read_text(path / "config.ini"), "second");
  }
}

TEST(RunFolder, NoticesThatItsFolderIsGone) {
  const TemporaryFolder folder;
  const RunFolder run(folder.path() / "a", Open::fresh, false);
  fs::remove_all(folder.path() / "a");
  EXPECT_THAT(error_text<FileError>([&] { run.still_owner(); }), HasSubstr("is gone"));
  EXPECT_THROW(run.write_text("config.ini", "x"), FileError);
}

TEST(RunFolder, WritesTextUnderPlainNamesOnly) {
  const TemporaryFolder folder;
  const RunFolder run(folder.path() / "a", Open::fresh, false);
  run.write_text("config.ini", "seed = 1\n");
  EXPECT_EQ(read_text(run.path() / "config.ini"), "seed = 1\n");
  for (const char* name : {"", ".", "..", "../x", "a/b", "owner"}) {
    EXPECT_THROW(run.write_text(name, "x"), std::invalid_argument) << name;
  }
}

TEST(RunFolder, SaysInOneSentenceThatAFolderCannotBeWritten) {
  const TemporaryFolder folder;
  write_text(folder.path() / "file", "x");
  EXPECT_THAT(error_text<FileError>([&] { RunFolder(folder.path() / "file", Open::fresh, false); }),
              HasSubstr("--run"));
  EXPECT_THAT(error_text<FileError>([&] { RunFolder(folder.path() / "file" / "run", Open::fresh, false); }),
              AllOf(HasSubstr("cannot create the folder"), HasSubstr("Not a directory"), HasSubstr("--run")));
  EXPECT_THROW(RunFolder("", Open::fresh, false), std::invalid_argument);

  const fs::path locked = folder.path() / "locked";
  fs::create_directory(locked);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(locked.c_str(), 0555), 0);
  const auto attempt = [&](const fs::path& path) {
    return said_by_ordinary_user(
        [&]() -> std::string { return test::message_of<FileError>([&] { RunFolder(path, Open::resume, false); }); });
  };
  EXPECT_THAT(attempt(locked), AllOf(HasSubstr("is not writable"), HasSubstr("Permission denied"), HasSubstr("--run")));
  EXPECT_THAT(attempt(locked / "run"), AllOf(HasSubstr("Permission denied"), HasSubstr("--run")));
}

}  // namespace
}  // namespace lockstep::io
