#include "comm/session/control_groups.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

class CpuGroups : public testing::Test {
 protected:
  ~CpuGroups() override { fs::remove_all(root_); }
  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::optional<CpuGroup> tightest(int host_cpus = 64) const {
    return tightest_cpu_group(host_cpus, {.groups = root_ / "sys", .own = root_ / "own"});
  }
  /// CPUs of the tightest group; 0: no group.
  double cpus() const { return tightest().value_or(CpuGroup{}).cpus; }

  fs::path root_ = fs::temp_directory_path() / ("lockstep-cpu-groups-" + std::to_string(getpid()));
};

TEST_F(CpuGroups, NoGroupsNoLimit) { EXPECT_FALSE(tightest()); }

TEST_F(CpuGroups, QuotasOfVersion2) {
  write("own", "0::/job/step\n");
  write("sys/job/step/cpu.max", "max 100000\n");
  EXPECT_FALSE(tightest()) << "max is no limit";
  write("sys/job/cpu.max", "150000 100000\n");
  ASSERT_TRUE(tightest());
  EXPECT_EQ(tightest()->name, (root_ / "sys/job").string());
  EXPECT_EQ(cpus(), 1.5);
  write("sys/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus(), 0.5);
  EXPECT_EQ(tightest()->name, (root_ / "sys/job/step").string());
  write("sys/job/step/cpu.max", "9900000 100000\n");
  write("sys/job/cpu.max", "9900000 100000\n");
  EXPECT_FALSE(tightest()) << "more than the host has";
}

TEST_F(CpuGroups, SetsOfVersion2) {
  write("own", "0::/job\n");
  write("sys/cpuset.cpus.effective", "0-63\n");
  EXPECT_FALSE(tightest()) << "all of them";
  write("sys/job/cpuset.cpus.effective", "0-3,8,10-11\n");
  EXPECT_EQ(cpus(), 7);
  write("sys/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus(), 4) << "the tighter of the two";
}

TEST_F(CpuGroups, OfVersion1) {
  write("own", "9:cpu,cpuacct:/a/b\n5:cpuset:/s\n4:memory:/elsewhere\n0::/\n");
  write("sys/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  write("sys/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(tightest());
  write("sys/cpu/a/cpu.cfs_quota_us", "600000\n");
  write("sys/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), 6);
  write("sys/cpuset/s/cpuset.cpus", "5\n");
  EXPECT_EQ(cpus(), 1);
  EXPECT_EQ(tightest()->name, (root_ / "sys/cpuset/s").string());
}

TEST_F(CpuGroups, InAContainerThePathIsThatOfTheHost) {
  write("own", "0::/host/path/that/is/not/here\n");
  write("sys/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpus(), 2);
}

TEST_F(CpuGroups, WhatIsNoNumberIsNoLimit) {
  write("own", "0::/job\nno colons here\n");
  write("sys/job/cpu.max", "\n");
  write("sys/job/cpuset.cpus.effective", "none\n");
  EXPECT_FALSE(tightest());
}

}  // namespace
}  // namespace lockstep::comm
