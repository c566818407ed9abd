#include "io/exchange/onnx_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/protobuf_message.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;

std::string bytes_of(const ProtobufMessage& message) {
  std::string text;
  message.write([&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_EQ(text.size(), message.bytes());
  return text;
}

// The examples of https://protobuf.dev/programming-guides/encoding.
TEST(ProtobufMessageTest, EncodesAsTheGuideDoes) {
  ProtobufMessage message;
  message.integer(1, 150);
  EXPECT_EQ(bytes_of(message), "\x08\x96\x01");
  ProtobufMessage text;
  text.text(2, "testing");
  EXPECT_EQ(bytes_of(text), "\x12\x07testing");
  ProtobufMessage outer;
  outer.message(3, std::move(message));
  EXPECT_EQ(bytes_of(outer), "\x1a\x03\x08\x96\x01");
  ProtobufMessage negative;
  negative.integer(1, -2);
  EXPECT_EQ(bytes_of(negative), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  ProtobufMessage real;
  real.real32(20, 1);
  EXPECT_EQ(bytes_of(real), std::string("\xa5\x01\x00\x00\x80\x3f", 6));
}

TEST(ProtobufMessageTest, LongBytesKeepTheirPlaceInNestedMessages) {
  const std::vector<std::byte> bytes(300, std::byte{'x'});
  ProtobufMessage inner, outer;
  inner.integer(1, 1);
  inner.borrowed(2, bytes);
  inner.integer(3, 2);
  outer.text(1, "a");
  outer.message(2, std::move(inner));
  outer.text(3, "b");
  EXPECT_EQ(bytes_of(outer),
            "\x0a\x01"
            "a\x12\xb3\x02\x08\x01\x12\xac\x02" +
                std::string(300, 'x') +
                "\x18\x02\x1a\x01"
                "b");
}

TEST(OnnxModelTest, TensorsThatAreTooManyGoToAFileOfTheirOwn) {
  const TemporaryFolder folder;
  const std::vector<float> values(2000, 1.5F);
  OnnxModel model{.graph_name = "g", .program_version = "1", .description = "d"};
  model.tensors.push_back({.name = "large", .shape = {2000}, .borrowed = std::as_bytes(std::span(values))});
  model.tensors.push_back({.name = "small", .shape = {2}, .borrowed = std::as_bytes(std::span(values).first(2))});
  model.tensors.push_back({.name = "other", .shape = {1000}, .borrowed = std::as_bytes(std::span(values).first(1000))});
  const std::filesystem::path file = folder.path() / "m.onnx", data = folder.path() / "m.onnx.data";
  EXPECT_THAT(write_onnx(file, model, IfThere::refuse), ElementsAre(file));
  const auto whole = std::filesystem::file_size(file);
  EXPECT_GT(whole, 12000U);
  EXPECT_THAT(write_onnx(file, model, IfThere::replace, 12000), ElementsAre(file, data));
  EXPECT_LT(std::filesystem::file_size(file), 1000U);
  const std::string bytes = read_text(data);
  ASSERT_EQ(bytes.size(), 8192U + 4000U) << "the second tensor begins at a page";
  EXPECT_EQ(bytes.substr(8192, 4), std::string("\0\0\xc0\x3f", 4));
  const std::string graph = read_text(file);
  EXPECT_NE(graph.find("m.onnx.data"), std::string::npos);
  EXPECT_NE(graph.find("8192"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(
      error_text<FileError>([&] { write_onnx(file, model, IfThere::refuse, 12000); }).find("m.onnx.data: is there"),
      std::string::npos);
  EXPECT_THAT(folder_names(folder.path()), ElementsAre("m.onnx.data")) << "no graph without its tensors";
}

}  // namespace
}  // namespace lockstep::io
