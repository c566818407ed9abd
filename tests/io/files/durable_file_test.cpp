#include "io/files/durable_file.hpp"

#include <atomic>
#include <set>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/small_disk.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(DurableFile, ReplacesWholeContentAndLeavesNoTemporary) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "owner";
  replace_file(file, "first");
  EXPECT_EQ(read_text(file), "first");
  replace_file(file, std::string(100000, 'x'));
  replace_file(file, "");
  EXPECT_EQ(read_text(file), "");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(DurableFile, ReadersNeverSeeHalfAFile) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "text";
  const std::string a(50000, 'a'), b(30000, 'b');
  replace_file(file, a);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i) replace_file(file, i % 2 == 0 ? b : a);
    done = true;
  });
  int torn = 0;
  while (!done) {
    const std::string seen = read_text(file);
    if (seen != a && seen != b) ++torn;
  }
  writer.join();
  EXPECT_EQ(torn, 0);
}

TEST(DurableFile, FailedReplacementKeepsTheOldContent) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "text";
  replace_file(file, "old");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THAT(error_text<FileError>([&] { replace_file(file, std::string(5000, 'n')); }),
                AllOf(HasSubstr("ulimit -f"), HasSubstr("text")));
  }
  EXPECT_EQ(read_text(file), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
  EXPECT_THAT(error_text<FileError>([&] { replace_file(folder.path() / "none" / "text", "x"); }),
              HasSubstr("No such file or directory"));
  fs::create_directory(folder.path() / "taken");
  error_text<FileError>([&] { replace_file(folder.path() / "taken", "x"); });
  EXPECT_EQ(entries(folder.path()), 2u);
}

TEST(DurableFile, CreatesOnceAmongMany) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "owner";
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { winners += create_file_once(file, "thread " + std::to_string(i)) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  const std::string content = read_text(file);
  EXPECT_FALSE(create_file_once(file, "late"));
  EXPECT_EQ(read_text(file), content);
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(DurableFile, AppendsAllOrNothing) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "log";
  const Descriptor descriptor = open_file(file, O_WRONLY | O_CREAT | O_APPEND, "open");
  append_whole(descriptor, "one\n", file);
  {
    const FileSizeLimit limit(10);
    EXPECT_THROW(append_whole(descriptor, "much too long\n", file), FileError);
  }
  EXPECT_EQ(read_text(file), "one\n") << "the part that still fitted is cut off again";
  append_whole(descriptor, "two\n", file);
  EXPECT_EQ(read_text(file), "one\ntwo\n");
}

TEST(DurableFile, FullDiskSaysNeededAndFree) {
  const SmallDisk disk("1M");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  disk.fill(0);
  const std::string text = error_text<FileError>([&] { replace_file(disk.path() / "text", std::string(9000, 'n')); });
  EXPECT_THAT(text, AllOf(HasSubstr("No space left on device"), HasSubstr("8.8 KiB needed"), HasSubstr("free")));
  EXPECT_EQ(entries(disk.path()), 1u);
}

TEST(DurableFile, TemporariesAreRecognised) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(temporary_beside("folder/owner").filename().string());
  EXPECT_EQ(names.size(), 100u);
  EXPECT_EQ(temporary_beside("folder/owner").parent_path(), "folder");
  for (const std::string& name : names) EXPECT_TRUE(is_temporary_of(name, "owner")) << name;
  EXPECT_FALSE(is_temporary_of(*names.begin(), "own"));
  EXPECT_FALSE(is_temporary_of("owner.tmp", "owner"));
  EXPECT_FALSE(is_temporary_of(".owner.tmp", "owner"));
  EXPECT_FALSE(is_temporary_of("owner", "owner"));
}

TEST(DurableFile, ReadsWholeFilesAndTellsNoneFromUnreadable) {
  const TemporaryFolder folder;
  const std::string long_text(200000, 't');
  write_text(folder.path() / "a", long_text);
  EXPECT_EQ(read_whole(folder.path() / "a"), long_text);
  EXPECT_FALSE(read_whole(folder.path() / "b").has_value());
  EXPECT_THAT(error_text<FileError>([&] { read_whole(folder.path()); }), HasSubstr("it is a folder"));
}

TEST(DurableFile, OwnFilesAreNoLinksPipesOrDevices) {
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link", pipe = folder.path() / "pipe", other = folder.path() / "other";
  write_text(other, "somebody else's");
  fs::create_symlink(other, link);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const int flags : {O_WRONLY | O_CREAT | O_APPEND, O_WRONLY | O_CREAT | O_TRUNC, O_RDONLY}) {
    EXPECT_THAT(error_text<FileError>([&] { open_own_file(link, flags, "open"); }), HasSubstr("it is a link"));
    EXPECT_THAT(error_text<FileError>([&] { open_own_file(pipe, flags, "open"); }), HasSubstr("a pipe"));
    EXPECT_THAT(error_text<FileError>([&] { open_own_file("/dev/null", flags, "open"); }), HasSubstr("a device"));
  }
  EXPECT_EQ(read_text(other), "somebody else's");
  EXPECT_THAT(error_text<FileError>([&] { read_whole(pipe); }), HasSubstr("a pipe"));
  append_whole(open_own_file(other, O_WRONLY | O_APPEND, "open"), " words", other);
  EXPECT_EQ(read_whole(other), "somebody else's words");
}

TEST(DurableFile, SyncsFilesAndFoldersAndSaysWhatIsMissing) {
  const TemporaryFolder folder;
  write_text(folder.path() / "a", "a");
  sync_file(folder.path() / "a");
  sync_folder(folder.path());
  EXPECT_THAT(error_text<FileError>([&] { sync_file(folder.path() / "b"); }), HasSubstr("/b: No such file"));
  EXPECT_THROW(sync_folder(folder.path() / "a"), FileError);
}

TEST(DurableFile, DescriptorsAreMovedAndClosed) {
  const TemporaryFolder folder;
  const auto is_open = [](int value) { return ::fcntl(value, F_GETFD) >= 0; };
  int first = -1;
  {
    Descriptor a = open_file(folder.path() / "a", O_WRONLY | O_CREAT, "open");
    first = a.get();
    Descriptor b = std::move(a);
    EXPECT_EQ(a.get(), -1);
    Descriptor c;
    c = std::move(b);
    EXPECT_EQ(c.get(), first);
    EXPECT_TRUE(is_open(first));
  }
  EXPECT_FALSE(is_open(first));
}

TEST(DurableFile, SizesAndTokensAsText) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(24 * 1024 * 1024), "24.0 MiB");
  EXPECT_EQ(size_text(std::uint64_t{5} << 50), "5120.0 TiB");
  EXPECT_EQ(random_token().size(), 32u);
  EXPECT_NE(random_token(), random_token());
  EXPECT_FALSE(free_bytes("/no such folder/at all").has_value());
  EXPECT_TRUE(free_bytes("not there yet").has_value());
}

}  // namespace
}  // namespace lockstep::io
