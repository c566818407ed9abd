#include "io/files/raw_reader.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

class RawReaderTest : public testing::Test {
 protected:
  RawReaderTest() { fs::create_directories(root_); }
  ~RawReaderTest() override { fs::remove_all(root_); }
  fs::path file(const std::string& name, std::size_t bytes) {
    std::ofstream(root_ / name) << std::string(bytes, 'x');
    return root_ / name;
  }
  fs::path root_ = fs::temp_directory_path() / ("lockstep-raw-" + std::to_string(getpid()));
};

TEST_F(RawReaderTest, ReadsRoundAllFiles) {
  RawReader reader({file("a", 1000), file("empty", 0), file("b", (3u << 20) + 7), file("c", 1)});
  EXPECT_EQ(reader.bytes(), 1000u + (3u << 20) + 7 + 1);
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{999}, std::uint64_t{1000}, reader.bytes() - 1,
                                    reader.bytes(), 5 * reader.bytes() + 3}) {
    EXPECT_NO_THROW(reader.read(first, 0));
    EXPECT_NO_THROW(reader.read(first, 1));
    EXPECT_NO_THROW(reader.read(first, 2 * reader.bytes() + 5));
  }
  reader.forget();
  EXPECT_NO_THROW(reader.read(0, reader.bytes()));
  const double share = reader.cached_share().value_or(1);  // some file systems do not report it
  EXPECT_THAT(share, testing::AllOf(testing::Gt(0.9), testing::Le(1)));
}

TEST_F(RawReaderTest, NothingToRead) {
  RawReader reader({file("empty", 0)});
  EXPECT_EQ(reader.bytes(), 0u);
  EXPECT_NO_THROW(reader.read(0, 100));
  EXPECT_FALSE(reader.cached_share());
}

TEST_F(RawReaderTest, SaysWhatCannotBeRead) {
  EXPECT_THROW(RawReader({root_ / "none"}), FileError);
  const fs::path shrinking = file("a", 5000);
  RawReader reader({file("b", 10), shrinking});
  fs::resize_file(shrinking, 100);
  EXPECT_THAT(error_text<FileError>([&] { reader.read(0, reader.bytes()); }),
              testing::HasSubstr("a at byte 100: the file has become shorter"));
}

}  // namespace
}  // namespace lockstep::io
