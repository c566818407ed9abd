#include "io/exchange/npz.hpp"

#include <gtest/gtest.h>

#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

TEST(NpzTest, HeadersOfArraysAreMultiplesOf64Bytes) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {3}, {3, 4}, {1234567890123, 4, 5, 6, 7, 8}, {10, 10}}) {
    const std::string header = npy_header(shape);
    EXPECT_EQ(header.size() % 64, 0U);
    EXPECT_EQ(header.back(), '\n');
    EXPECT_EQ(static_cast<unsigned char>(header[8]) + 256U * static_cast<unsigned char>(header[9]) + 10, header.size());
  }
  EXPECT_NE(npy_header(std::vector<std::int64_t>{}).find("'shape': ()"), std::string::npos);
  EXPECT_NE(npy_header(std::vector<std::int64_t>{3}).find("'shape': (3,)"), std::string::npos);
  EXPECT_NE(npy_header(std::vector<std::int64_t>{3, 4}).find("'shape': (3, 4)"), std::string::npos);
}

// numpy reads archives in tests/cli/export.sh.
TEST(NpzTest, ArchivesAreZipFilesWithoutADate) {
  const TemporaryFolder folder;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<NamedTensor> tensors{{"a/b", {2, 3}, values}, {"c", {6}, values}};
  write_npz(folder.path() / "x.npz", tensors, IfThere::refuse);
  write_npz(folder.path() / "y.npz", tensors, IfThere::refuse);
  const std::string bytes = read_text(folder.path() / "x.npz");
  EXPECT_EQ(bytes, read_text(folder.path() / "y.npz"));
  EXPECT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ(bytes.substr(bytes.size() - 22, 4), "PK\x05\x06");
  EXPECT_NE(bytes.find("a/b.npy"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::io
