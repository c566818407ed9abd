// Headers that promise more than their file can hold are refused before memory is allocated.
#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/formats/image_file.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DamagedHeadersTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  static std::string big_endian(std::uint32_t value) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
    return text;
  }
  /// Claims [40, height, width] bytes.
  static std::string idx(std::uint32_t height, std::uint32_t width) {
    return std::string("\0\0\x08\x03", 4) + big_endian(40) + big_endian(height) + big_endian(width) +
           std::string(640, 'x');
  }
  static std::string npy(const std::string& shape) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(118, ' ');
    return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + std::string(960, 'x');
  }
  std::string pack_error(std::unique_ptr<SampleSource> source) const {
    return error_text<FileError>([&] { write_shards(*source, {.folder = folder_.path() / "out"}, {}); });
  }
  TemporaryFolder folder_;
};

TEST_F(DamagedHeadersTest, ArraysAreComparedWithTheSizeOfTheirFile) {
  for (const std::uint32_t width : {5U, 0x51CAA796U, 0x80000004U}) {
    EXPECT_THAT(error_text<FileError>([&] { open_idx(file("x-idx", idx(4, width)), {}); }),
                AllOf(HasSubstr("x-idx: its header promises"), HasSubstr("ends at byte 656"), HasSubstr("again")));
  }
  EXPECT_EQ(open_idx(file("x-idx", idx(4, 4)), {})->count(), 40);
  EXPECT_THAT(error_text<FileError>([&] { open_npy(file("x.npy", npy("(40, 3000000000)")), {}); }),
              AllOf(HasSubstr("x.npy: its header promises 480000000000 bytes"), HasSubstr("ends at byte 1088")));
  EXPECT_EQ(open_npy(file("x.npy", npy("(40, 6)")), {})->count(), 40);
}

TEST_F(DamagedHeadersTest, PackedArraysMayUnpackToAThousandTimesTheirSize) {
  const auto zip = [&](const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = folder_.path() / name;
    gzFile out = gzopen(path.c_str(), "wb9");
    gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(out);
    return path;
  };
  const std::string zeros = idx(1000, 1000).substr(0, 16) + std::string(40'000'000, '\0');
  EXPECT_EQ(open_idx(zip("zeros.gz", zeros), {})->count(), 40) << "as small as deflate makes it";
  EXPECT_THAT(error_text<FileError>([&] { open_idx(zip("x.gz", idx(4, 0x51CAA796U)), {}); }),
              AllOf(HasSubstr("x.gz: its header promises"), HasSubstr("(gzip)")));
}

TEST_F(DamagedHeadersTest, LabelsFarBeyondTheSamplesAreNoClasses) {
  const auto labels = [](std::int32_t last) {
    return MemorySource::Options{.samples = 40, .y_type = FileType::int32, .label = [last](std::int64_t i) {
                                   return i == 17 ? static_cast<double>(last) : static_cast<double>(i % 3);
                                 }};
  };
  EXPECT_THAT(pack_error(std::make_unique<MemorySource>(labels(909'295'687))),
              AllOf(HasSubstr("sample 17 has label 909295687"), HasSubstr("40 samples do not explain")));
  MemorySource part_of_many(labels(1'000'000));
  EXPECT_NO_THROW(write_shards(part_of_many, {.folder = folder_.path() / "part"}, {}));
  EXPECT_EQ(ShardedDataset({.path = folder_.path() / "part"}).info().classes, 1'000'001);

  const auto plain = [&](std::int32_t last) {
    const std::filesystem::path path = folder_.path() / "plain.h5";
    Hdf5File out(path, Hdf5File::Access::create);
    const std::vector<std::int64_t> shape{40};
    std::vector<std::int32_t> values(40, 1);
    values[17] = last;
    for (const char* name : {"x", "y", "tokens"}) {
      out.create_dataset(name, FileType::int32, shape);
      out.write(name, FileType::int32, std::as_bytes(std::span(values)));
    }
    out.close();
    return path;
  };
  EXPECT_THAT(error_text<FileError>([&] { ShardedDataset({.path = plain(909'295'687)}); }),
              AllOf(HasSubstr("plain.h5: sample 17 has label 909295687"), HasSubstr("40 samples")));
  EXPECT_THAT(error_text<FileError>([&] { TokenDataset({.path = plain(909'295'687), .context = 4}); }),
              AllOf(HasSubstr("plain.h5: holds token 909295687"), HasSubstr("40 tokens")));
  EXPECT_EQ(ShardedDataset({.path = plain(21'840)}).info().classes, 21'841);
}

TEST_F(DamagedHeadersTest, ImagesAreComparedWithTheSizeOfTheirFile) {
  if (!can_decode_images()) GTEST_SKIP() << "not run: built without JPEG and PNG";
  const auto chunk = [](const std::string& kind_and_data) {
    const auto sum =
        crc32(0, reinterpret_cast<const Bytef*>(kind_and_data.data()), static_cast<uInt>(kind_and_data.size()));
    return big_endian(static_cast<std::uint32_t>(kind_and_data.size() - 4)) + kind_and_data +
           big_endian(static_cast<std::uint32_t>(sum));
  };
  const std::string png = "\x89PNG\r\n\x1A\n" +
                          chunk("IHDR" + big_endian(30'000) + big_endian(30'000) + std::string("\x08\x02\0\0\0", 5)) +
                          chunk("IDAT" + std::string(50, 'x'));
  EXPECT_THAT(error_text<FileError>([&] { read_image(file("bomb.png", png)); }),
              AllOf(HasSubstr("bomb.png: is damaged: its header promises 30000 x 30000 pixels"), HasSubstr("again")));
  // SOI, one quantisation table, SOF0 of 30,000 x 30,000 grey pixels.
  std::string jpeg = "\xFF\xD8\xFF\xDB" + std::string("\0\x43\0", 3) + std::string(64, '\1');
  jpeg += std::string("\xFF\xC0\0\x0B\x08\x75\x30\x75\x30\x01\x01\x11\0", 13);
  jpeg += std::string("\xFF\xDA\0\x08\x01\x01\0\0\x3F\0", 10) + std::string(50, 'x') + "\xFF\xD9";
  EXPECT_THAT(error_text<FileError>([&] { read_image(file("bomb.jpg", jpeg)); }), HasSubstr("bomb.jpg: is damaged"));
}

/// Unlike the test above, this one distinguishes a refusal before the allocation from a later one.
TEST_F(DamagedHeadersTest, NoMemoryIsTakenForWhatIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "not run: sanitizers map all memory";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit little = before;
  little.rlim_cur = std::min<rlim_t>(before.rlim_max, rlim_t{1} << 30);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  EXPECT_THROW(open_idx(file("x-idx", idx(4, 0x51CAA796U)), {}), FileError);
  EXPECT_THROW(open_npy(file("x.npy", npy("(40, 3000000000)")), {}), FileError);
  setrlimit(RLIMIT_AS, &before);
}

}  // namespace
}  // namespace lockstep::io
