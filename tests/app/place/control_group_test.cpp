#include "app/place/control_group.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

class ControlGroup : public testing::Test {
 protected:
  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::optional<MemoryGroup> tightest() const {
    return tightest_memory_group({.groups = root_ / "sys", .own = root_ / "own"});
  }

  const io::TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
};

TEST_F(ControlGroup, NoGroupsNoLimit) { EXPECT_FALSE(tightest()); }

TEST_F(ControlGroup, OfVersion2) {
  write("own", "0::/job/step\n");
  write("sys/job/step/memory.max", "max\n");
  write("sys/job/step/memory.current", "5\n");
  EXPECT_FALSE(tightest()) << "max is no limit";
  write("sys/job/memory.max", "1000\n");
  write("sys/job/memory.current", "700\n");
  write("sys/job/memory.stat", "anon 100\ninactive_file 300\nactive_file 50\n");
  const auto group = tightest();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->name, (root_ / "sys/job").string());
  EXPECT_EQ(group->limit, 1000u);
  EXPECT_EQ(group->used, 400u);
  EXPECT_EQ(group->free(), 600u);
}

TEST_F(ControlGroup, OfVersion1AndTheTightestOfSeveral) {
  write("own", "9:cpu,cpuacct:/elsewhere\n4:memory:/a/b\n0::/\n");
  write("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/memory/memory.usage_in_bytes", "1\n");
  write("sys/memory/a/memory.limit_in_bytes", "500\n");
  write("sys/memory/a/memory.usage_in_bytes", "450\n");
  write("sys/memory/a/b/memory.limit_in_bytes", "400\n");
  write("sys/memory/a/b/memory.usage_in_bytes", "100\n");
  const auto group = tightest();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->name, (root_ / "sys/memory/a").string()) << "50 are left there, 300 below";
  EXPECT_EQ(group->free(), 50u);
}

TEST_F(ControlGroup, InAContainerThePathIsThatOfTheHost) {
  write("own", "0::/host/path/that/is/not/here\n");
  write("sys/memory.max", "64\n");
  write("sys/memory.current", "80\n");
  const auto group = tightest();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->free(), 0u) << "more used than allowed";
}

}  // namespace
}  // namespace lockstep::app
