#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string as_bytes(const std::vector<std::uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2};
}

std::string header(std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = 20240520;
  words[1] = version;
  words[2] = tokens;
  return {reinterpret_cast<const char*>(words.data()), 1024};
}

class TokenFileTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) {
    write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  std::string refused(const std::string& bytes, std::int64_t vocabulary = 50257) {
    return error_text<FileError>([&] {
      const auto source = open_tokens({file("bad.bin", bytes)}, vocabulary);
      std::vector<std::byte> all(static_cast<std::size_t>(source->count()) * source->fields()[0].bytes());
      const std::span<std::byte> buffer(all);
      source->read(source->count(), {&buffer, 1});
    });
  }
  TemporaryFolder folder_;
};

TEST_F(TokenFileTest, FlatFilesAndThoseWithAHeader) {
  const auto a = file("a.bin", as_bytes({1, 2, 50256}));
  const auto b = file("b.bin", header(1, 2) + as_bytes({7, 0}));
  const auto source = open_tokens({a, b}, 50257);
  EXPECT_EQ(source->count(), 5);
  EXPECT_EQ(source->fields()[0].type, FileType::uint16);
  EXPECT_EQ(source->token_info()->kind, "ids");
  EXPECT_EQ(source->token_info()->vocabulary, 50257);
  EXPECT_EQ(source->source_bytes(), 0U) << "nobody knows what text it was";
  std::vector<std::uint16_t> tokens(5);
  const std::span<std::byte> all = std::as_writable_bytes(std::span(tokens));
  const std::span<std::byte> first = all.first(8), last = all.subspan(8);
  source->read(4, {&first, 1});
  source->read(1, {&last, 1});
  EXPECT_EQ(tokens, (std::vector<std::uint16_t>{1, 2, 50256, 7, 0}));
  EXPECT_THROW(source->read(1, {&last, 1}), std::invalid_argument);
}

TEST_F(TokenFileTest, SmallVocabulariesAreStoredInBytesAndLargeOnesInWords) {
  for (const std::int64_t vocabulary : {100, 70000}) {
    const auto source = open_tokens({file("a.bin", as_bytes({99, 3}))}, vocabulary);
    EXPECT_EQ(source->fields()[0].type, vocabulary == 100 ? FileType::uint8 : FileType::int32);
    std::vector<std::byte> tokens(2 * source->fields()[0].bytes());
    const std::span<std::byte> buffer(tokens);
    source->read(2, {&buffer, 1});
    EXPECT_EQ(tokens[0], std::byte{99});
    EXPECT_EQ(tokens[tokens.size() / 2], std::byte{3});
  }
}

TEST_F(TokenFileTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refused("abc"), AllOf(HasSubstr("bad.bin"), HasSubstr("3 bytes")));
  EXPECT_THAT(refused(""), HasSubstr("no tokens"));
  EXPECT_THAT(refused(header(1, 3) + as_bytes({1, 2})), AllOf(HasSubstr("1030"), HasSubstr("1028")));
  EXPECT_THAT(refused(header(1, 1) + as_bytes({1, 2})), HasSubstr("1026"));
  EXPECT_THAT(refused(header(2, 2) + as_bytes({1, 2})), HasSubstr("version 2"));
  EXPECT_THAT(refused(as_bytes({1, 2, 60000})),
              AllOf(HasSubstr("token 2 is 60000"), HasSubstr("50257"), HasSubstr("--vocabulary")));
  EXPECT_THROW(open_tokens({}, 5), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
