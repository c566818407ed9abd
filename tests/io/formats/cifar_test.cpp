#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::uint8_t pixel(std::int64_t sample, std::int64_t colour, std::int64_t place) {
  return static_cast<std::uint8_t>(sample * 31 + colour * 85 + place);
}

/// Records [first, first + count): label i mod 10 or (i mod 20, i mod 100), planes of red, green, blue.
std::string batch(std::int64_t first, std::int64_t count, bool fine) {
  std::string bytes;
  for (std::int64_t i = first; i < first + count; ++i) {
    bytes += static_cast<char>(i % (fine ? 20 : 10));
    if (fine) bytes += static_cast<char>(i % 100);
    for (std::int64_t colour = 0; colour < 3; ++colour) {
      for (std::int64_t place = 0; place < 1024; ++place) bytes += static_cast<char>(pixel(i, colour, place));
    }
  }
  return bytes;
}

class CifarTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) {
    write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  std::string refused(const std::string& bytes, CifarKind kind) {
    return error_text<FileError>([&] { read_all(*open_cifar({file("bad.bin", bytes)}, kind)); });
  }
  struct Samples {
    std::vector<std::uint8_t> x, y;
  };
  static Samples read_all(SampleSource& source) {
    const auto count = static_cast<std::size_t>(source.count());
    Samples samples{std::vector<std::uint8_t>(count * 3072), std::vector<std::uint8_t>(count)};
    for (std::size_t i = 0; i < count; ++i) {  // one by one: files end between them
      const std::span<std::byte> buffers[] = {std::as_writable_bytes(std::span(samples.x).subspan(i * 3072, 3072)),
                                              std::as_writable_bytes(std::span(samples.y).subspan(i, 1))};
      source.read(1, buffers);
    }
    return samples;
  }
  TemporaryFolder folder_;
};

TEST_F(CifarTest, AFolderIsItsTrainingBatchesInOrder) {
  file("data_batch_2.bin", batch(3, 4, false));
  file("data_batch_1.bin", batch(0, 3, false));
  file("test_batch.bin", batch(50, 2, false));
  file("batches.meta.txt", "aeroplane\r\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const auto source = open_cifar({folder_.path()}, CifarKind::cifar10);
  EXPECT_EQ(source->count(), 7);
  EXPECT_EQ(source->fields()[0].sample_shape, (std::vector<std::int64_t>{32, 32, 3}));
  EXPECT_EQ(source->class_names()[0], "aeroplane");
  EXPECT_EQ(source->class_names().size(), 10U);
  EXPECT_THAT(source->description(), HasSubstr("cifar10 data_batch_1.bin data_batch_2.bin"));
  const Samples samples = read_all(*source);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(samples.y[i], i);
    for (std::size_t place = 0; place < 1024; ++place) {
      for (std::size_t colour = 0; colour < 3; ++colour) {
        ASSERT_EQ(
            samples.x[i * 3072 + place * 3 + colour],
            pixel(static_cast<std::int64_t>(i), static_cast<std::int64_t>(colour), static_cast<std::int64_t>(place)));
      }
    }
  }
  std::byte more[3073];
  const std::span<std::byte> buffers[] = {std::span(more).first(3072), std::span(more).last(1)};
  EXPECT_THROW(source->read(1, buffers), std::invalid_argument);
}

TEST_F(CifarTest, FineLabelsOfCifar100) {
  const auto train = file("train.bin", batch(18, 5, true));
  EXPECT_EQ(read_all(*open_cifar({folder_.path()}, CifarKind::cifar100)).y,
            (std::vector<std::uint8_t>{18, 19, 20, 21, 22}));
  EXPECT_EQ(open_cifar({train}, CifarKind::cifar100)->class_names().at(99), "99") << "no names beside the file";
}

TEST_F(CifarTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refused(batch(0, 2, false) + "x", CifarKind::cifar10),
              AllOf(HasSubstr("bad.bin"), HasSubstr("6147 bytes"), HasSubstr("3073")));
  EXPECT_THAT(refused("", CifarKind::cifar10), HasSubstr("0 bytes"));
  EXPECT_THAT(refused(batch(0, 1, false), CifarKind::cifar100), HasSubstr("3074"));
  std::string bytes = batch(0, 3, false);
  bytes[2 * 3073] = 10;
  EXPECT_THAT(refused(bytes, CifarKind::cifar10),
              AllOf(HasSubstr("record 2"), HasSubstr("label 10"), HasSubstr("[0, 10)")));
  bytes = batch(0, 2, true);
  bytes[3074] = 20;
  EXPECT_THAT(refused(bytes, CifarKind::cifar100), AllOf(HasSubstr("record 1"), HasSubstr("coarse label 20")));
  bytes[3074] = 1;
  bytes[3075] = 100;
  EXPECT_THAT(refused(bytes, CifarKind::cifar100), AllOf(HasSubstr("record 1"), HasSubstr("label 100")));
  EXPECT_THAT(error_text<FileError>([&] { open_cifar({folder_.path()}, CifarKind::cifar10); }),
              HasSubstr("data_batch_*.bin"));
  EXPECT_THAT(error_text<FileError>([&] { open_cifar({folder_.path() / "none.bin"}, CifarKind::cifar10); }),
              HasSubstr("none.bin"));
}

}  // namespace
}  // namespace lockstep::io
