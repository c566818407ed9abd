#include "comm/session/start_folders.hpp"

#include <cstdlib>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StartFolder needs(const std::filesystem::path& folder, std::uint64_t bytes) {
  return {.folder = folder, .remedy = "take another", .min_free = bytes};
}

TEST(StartFolders, TheFirstThatCannotBeUsedIsNamed) {
  const std::filesystem::path here = std::filesystem::temp_directory_path();
  EXPECT_EQ(obstacle_in({}), "");
  EXPECT_EQ(obstacle_in({needs(here, 0)}), "");
  EXPECT_THAT(obstacle_in({needs(here, 0), needs(here / "missing", 0), needs("/elsewhere", 0)}),
              AllOf(HasSubstr((here / "missing").string()), HasSubstr("No such file"), HasSubstr(": take another")));
  EXPECT_THAT(
      obstacle_in({needs(here, std::numeric_limits<std::uint64_t>::max())}),
      AllOf(HasSubstr(here.string() + " has "), HasSubstr(" KiB left, less than the "), HasSubstr("take another")));
  EXPECT_THAT(obstacle_in({needs("/proc", 1)}), HasSubstr("/proc has 0 KiB left"));
}

TEST(StartFolders, ThoseOfOpenMpiAreKnownWhereItsLauncherSharesFiles) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  unsetenv("PMIX_DSTORE_ESH_BASE_PATH");
  EXPECT_TRUE(start_folders().empty()) << "PMIX_MCA_gds=hash needs none";
  setenv("PMIX_DSTORE_ESH_BASE_PATH", "/scratch/ompi/ds", 1);
  const auto folders = start_folders();
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_EQ(folders[0].folder, "/scratch/ompi/ds");
  EXPECT_THAT(folders[0].remedy, HasSubstr("TMPDIR"));
  EXPECT_TRUE(folders[0].is_needed);
  EXPECT_EQ(folders[1].folder, "/dev/shm");
  EXPECT_FALSE(folders[1].is_needed);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_TRUE(start_folders().empty()) << "no such launcher";
  unsetenv("PMIX_DSTORE_ESH_BASE_PATH");
}

}  // namespace
}  // namespace lockstep::comm
