#include "io/datasets/hdf5_listing.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> names(const Hdf5Listing& listing) {
  std::vector<std::string> names;
  for (const auto& file : listing.files) names.push_back(file.filename().string());
  return names;
}

TEST(Hdf5Listing, HasTheFilesOfAllEndingsInTheOrderOfTheirNumbers) {
  const TemporaryFolder folder;
  for (const char* name : {"day-10.nc", "day-9.h5", "day-11.HDF5", "day-1.he5", "day-2.NC4", ".day-3.h5"}) {
    write_text(folder.path() / name, "");
  }
  const Hdf5Listing listing = list_hdf5_files(folder.path());
  EXPECT_THAT(names(listing), ElementsAre("day-1.he5", "day-2.NC4", "day-9.h5", "day-10.nc", "day-11.HDF5"));
  EXPECT_EQ(listing.remark, "");
}

TEST(Hdf5Listing, NamesWhatItLeavesOut) {
  const TemporaryFolder folder;
  for (const char* name : {"a.h5", "b.grib", "c.dat"}) write_text(folder.path() / name, "");
  std::filesystem::create_directory(folder.path() / "older");
  const Hdf5Listing listing = list_hdf5_files(folder.path());
  EXPECT_THAT(names(listing), ElementsAre("a.h5"));
  EXPECT_THAT(listing.remark, HasSubstr("b.grib, c.dat, older"));
}

TEST(Hdf5Listing, RefusesNamesWithoutAFile) {
  const TemporaryFolder folder;
  write_text(folder.path() / "2001.nc", "");
  std::filesystem::create_symlink("/archive/2002.nc", folder.path() / "2002.nc");
  const auto error = [&] { return error_text<FileError>([&] { list_hdf5_files(folder.path()); }); };
  EXPECT_THAT(error(), HasSubstr("2002.nc: is a link to /archive/2002.nc, which is not there"));
  std::filesystem::remove(folder.path() / "2002.nc");
  EXPECT_EQ(names(list_hdf5_files(folder.path())).size(), 1u);
  std::filesystem::create_directory(folder.path() / "2002.nc");
  EXPECT_THAT(error(), HasSubstr("2002.nc: has the name of an HDF5 file and is none"));
}

TEST(Hdf5Listing, FilesOfRelatedFormatsAreRecognised) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& begin) {
    write_text(folder.path() / "a.nc", begin + std::string(600, '\0'));
    return error_text<FileError>([&] { Hdf5File(folder.path() / "a.nc", Hdf5File::Access::read); });
  };
  EXPECT_THAT(refusal("CDF\x01"), AllOf(HasSubstr("it is not an HDF5 file"), HasSubstr("nccopy -k nc4")));
  EXPECT_THAT(refusal("\x0e\x03\x13\x01"), HasSubstr("h4toh5"));
  EXPECT_THAT(refusal("text"), AllOf(HasSubstr("it is not an HDF5 file"), Not(HasSubstr("convert"))));
}

}  // namespace
}  // namespace lockstep::io
