#include "io/exchange/safetensors.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/json_text.hpp"
#include "io/io_test_support.hpp"
#include "io/small_disk.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// A file with this header, followed by the data.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

std::string tensor_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                         std::uint64_t begin, std::uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin, end);
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string refusal(const std::string& header, std::size_t data_bytes) {
    write_text(file_, file_of(header, std::string(data_bytes, '\0')));
    return error_text<FileError>([&] { SafetensorsFile{file_}; });
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "x.safetensors";
};

TEST_F(SafetensorsTest, ReadsBackWhatItWrites) {
  const std::vector<float> values{1, -2, 0.5F, std::numeric_limits<float>::infinity(), 1e-40F, 7};
  const std::vector<NamedTensor> tensors{{"b/weight", {2, 3}, values},
                                         {"a", {2}, std::span(values).first(2)},
                                         {"empty", {0, 4}, {}},
                                         {"scalar", {}, std::span(values).first(1)}};
  write_safetensors(file_, tensors, {{"format", "pt"}, {"text", "ö \"\n"}}, IfThere::refuse);
  const SafetensorsFile read(file_);
  EXPECT_EQ(read.metadata(), (Metadata{{"format", "pt"}, {"text", "ö \"\n"}}));
  ASSERT_EQ(read.entries().size(), 4U);
  EXPECT_EQ(read.entries()[0].name, "a");
  ASSERT_NE(read.find("b/weight"), nullptr);
  EXPECT_THAT(read.find("b/weight")->shape, ElementsAre(2, 3));
  EXPECT_EQ(read.read(*read.find("b/weight")), values);
  EXPECT_EQ(read.find("c"), nullptr);
  std::uint64_t length = 0;
  std::memcpy(&length, read_text(file_).data(), sizeof length);
  EXPECT_EQ(length % 8, 0U) << "the tensors begin at a multiple of 8 bytes";
}

TEST_F(SafetensorsTest, EqualContentGivesEqualBytesInAnyOrder) {
  const std::vector<float> values{1, 2, 3};
  std::vector<NamedTensor> tensors{{"a", {3}, values}, {"b", {1, 3}, values}};
  write_safetensors(file_, tensors, {}, IfThere::refuse);
  std::swap(tensors[0], tensors[1]);
  write_safetensors(folder_.path() / "y", tensors, {}, IfThere::refuse);
  EXPECT_EQ(read_text(file_), read_text(folder_.path() / "y"));
  tensors[0].name = "a";
  EXPECT_THROW(write_safetensors(file_, tensors, {}, IfThere::replace), std::invalid_argument);
}

TEST_F(SafetensorsTest, ConvertsHalfPrecisionExactly) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double sign = half >> 15 != 0 ? -1 : 1;
    const float got = float_from_half(half);
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(got));
      continue;
    }
    const double want = exponent == 31  ? std::numeric_limits<double>::infinity()
                        : exponent == 0 ? std::ldexp(mantissa, -24)
                                        : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(got), sign * want) << bits;
    ASSERT_EQ(std::signbit(got), sign < 0) << bits;
  }
  write_text(file_,
             file_of("{" + tensor_entry("h", "F16", "[2]", 0, 4) + "," + tensor_entry("b", "BF16", "[1]", 4, 6) + "}",
                     std::string("\x00\x3c\x00\xc0\x40\xc0", 6)));
  const SafetensorsFile read(file_);
  EXPECT_THAT(read.read(*read.find("h")), ElementsAre(1.0F, -2.0F));
  EXPECT_THAT(read.read(*read.find("b")), ElementsAre(-3.0F));
}

TEST_F(SafetensorsTest, ListsTypesThatItDoesNotRead) {
  write_text(file_, file_of("{" + tensor_entry("mask", "BOOL", "[3]", 0, 3) + "}", "abc"));
  const SafetensorsFile read(file_);
  EXPECT_THAT(error_text<FileError>([&] { read.read(read.entries().front()); }),
              AllOf(StartsWith(file_.string()), HasSubstr("mask is of type BOOL")));
}

TEST_F(SafetensorsTest, RefusesHolesOverlapsAndBytesBehindTheEnd) {
  const std::string first = tensor_entry("a", "F32", "[1]", 0, 4);
  EXPECT_THAT(refusal("{" + first + "," + tensor_entry("b", "F32", "[1]", 8, 12) + "}", 12),
              AllOf(StartsWith(file_.string()), HasSubstr("b begins at byte 8, and the tensor before it ends at 4")));
  EXPECT_THAT(refusal("{" + first + "," + tensor_entry("b", "F32", "[1]", 2, 6) + "}", 6),
              HasSubstr("b begins at byte 2"));
  EXPECT_THAT(refusal("{" + first + "}", 5), HasSubstr("its tensors have 4 bytes, and the file has 5 for them"));
  EXPECT_THAT(refusal("{" + first + "}", 3), HasSubstr("it is cut off"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[1]", 4, 8) + "}", 8), HasSubstr("a begins at byte 4"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("the file has 1 for them"));
}

TEST_F(SafetensorsTest, RefusesShapesThatContradictTheBytes) {
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[2]", 0, 4) + "}", 4), HasSubstr("contradict"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0),
              HasSubstr("contradict"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[4611686018427387904,4]", 0, 0) + "}", 0),
              HasSubstr("contradict"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[1]", 4, 0) + "}", 4), HasSubstr("a begins at byte 4"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F7", "[1]", 0, 4) + "}", 4), HasSubstr("a is of an unknown type, F7"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[-1]", 0, 4) + "}", 4), HasSubstr("the number -1"));
  EXPECT_THAT(refusal("{" + tensor_entry("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) + "}", 4),
              HasSubstr("more than 8 numbers"));
}

TEST_F(SafetensorsTest, RefusesKeysThatAreThereTwiceOrMeanNothing) {
  const std::string a = tensor_entry("a", "F32", "[1]", 0, 4);
  EXPECT_THAT(refusal("{" + a + "," + a + "}", 4), HasSubstr("a is there twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), HasSubstr("k is there twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":1}})", 0), HasSubstr("the number 1"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":{}}})", 0), HasSubstr("an object"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":[]}})", 4), HasSubstr("more"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), HasSubstr("two numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":["F32"]}})", 4), HasSubstr("a list"));
  EXPECT_THAT(refusal(R"({"a":[1]})", 4), HasSubstr("a list"));
  EXPECT_THAT(refusal("{" + a, 4), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[" + std::string(100000, '['), 4), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(100000, '['), 4), HasSubstr("a list"));
}

TEST_F(SafetensorsTest, BelievesNoHeaderThatTheFileHasNoRoomFor) {
  write_text(file_, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_THAT(error_text<FileError>([&] { SafetensorsFile{file_}; }), HasSubstr("its header has 9223372036854775807"));
  write_text(file_, "short");
  EXPECT_THAT(error_text<FileError>([&] { SafetensorsFile{file_}; }), HasSubstr("it has 5 bytes"));
  EXPECT_THAT(error_text<FileError>([&] { SafetensorsFile{folder_.path()}; }), HasSubstr(folder_.path().string()));
  EXPECT_THAT(error_text<FileError>([&] { SafetensorsFile{folder_.path() / "none"}; }), HasSubstr("No such file"));
}

TEST_F(SafetensorsTest, LeavesAnExistingFileAloneUnlessToldToReplaceIt) {
  write_text(file_, "precious");
  EXPECT_EQ(error_text<FileError>([&] { write_safetensors(file_, {}, {}, IfThere::refuse); }),
            file_.string() + ": is there already: give --force to replace it");
  EXPECT_EQ(read_text(file_), "precious");
  {
    // A file that appears while the other is written.
    std::filesystem::remove(file_);
    OutputFile late(file_, IfThere::refuse, 4);
    late.write("late");
    write_text(file_, "first");
    EXPECT_THAT(error_text<FileError>([&] { late.finish(); }), HasSubstr("is there already"));
  }
  EXPECT_EQ(read_text(file_), "first");
  write_safetensors(file_, {}, {}, IfThere::replace);
  EXPECT_TRUE(SafetensorsFile(file_).entries().empty());
  EXPECT_THAT(folder_names(folder_.path()), ElementsAre("x.safetensors")) << "no temporary is left";
}

TEST_F(SafetensorsTest, LeavesNothingOnAFullDisk) {
  const SmallDisk disk("1m");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  const std::vector<float> values(500000);
  const std::vector<NamedTensor> tensors{{"a", {500000}, values}};
  EXPECT_THAT(error_text<FileError>([&] { write_safetensors(disk.path() / "x", tensors, {}, IfThere::refuse); }),
              AllOf(HasSubstr("x: cannot be written: No space left on device: 1.9 MiB needed"), HasSubstr("free")));
  EXPECT_THAT(folder_names(disk.path()), ElementsAre());
}

}  // namespace
}  // namespace lockstep::io
