#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Element = std::uint16_t>
std::string as_bytes(const std::vector<Element>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Element)};
}

std::string header(std::int32_t version, std::int32_t tokens, std::int32_t magic = 20240520) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return {reinterpret_cast<const char*>(words.data()), 1024};
}

/// A .npy of numbers of the type `descr`.
std::string npy(const std::string& descr, const std::string& shape, const std::string& elements) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  text.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + text + "\n" + elements;
}

class TokenFileTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) {
    write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  void read_all(const std::string& bytes, std::int64_t vocabulary) {
    const auto source = open_tokens({file("bad.bin", bytes)}, vocabulary);
    std::vector<std::byte> all(static_cast<std::size_t>(source->count()) * source->fields()[0].bytes());
    const std::span<std::byte> buffer(all);
    source->read(source->count(), {&buffer, 1});
  }
  std::string refused(const std::string& bytes, std::int64_t vocabulary = 50257) {
    return error_text<FileError>([&] { read_all(bytes, vocabulary); });
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
    const std::string bytes = vocabulary == 100 ? as_bytes({99, 3}) : as_bytes<std::uint32_t>({99, 3});
    const auto source = open_tokens({file("a.bin", bytes)}, vocabulary);
    EXPECT_EQ(source->fields()[0].type, vocabulary == 100 ? FileType::uint8 : FileType::int32);
    ASSERT_EQ(source->count(), 2);
    std::vector<std::byte> tokens(2 * source->fields()[0].bytes());
    const std::span<std::byte> buffer(tokens);
    source->read(2, {&buffer, 1});
    EXPECT_EQ(tokens[0], std::byte{99});
    EXPECT_EQ(tokens[tokens.size() / 2], std::byte{3});
  }
}

TEST_F(TokenFileTest, EveryFormatSaysHowManyBytesATokenHas) {
  const std::vector<std::uint32_t> tokens{128255, 0, 65536, 7};
  const std::string bytes = as_bytes(tokens);
  const std::string wide = as_bytes(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
  for (const std::string& one : {bytes, header(7, 4, 20240801) + bytes, npy("<u4", "(4,)", bytes),
                                 npy("<i4", "(4,)", bytes), npy("<i8", "(4,)", wide)}) {
    const auto source = open_tokens({file("a.bin", one)}, 128256);
    ASSERT_EQ(source->count(), 4);
    std::vector<std::uint32_t> read(4);
    const std::span<std::byte> buffer = std::as_writable_bytes(std::span(read));
    source->read(4, {&buffer, 1});
    EXPECT_EQ(read, tokens);
  }
  const auto source = open_tokens({file("a.npy", npy("<u2", "(3,)", as_bytes({1, 2, 50256})))}, 50257);
  EXPECT_EQ(source->count(), 3);
}

TEST_F(TokenFileTest, NumbersOfTwiceAsManyBytesAreRefused) {
  std::vector<std::uint16_t> narrow;
  std::vector<std::uint32_t> wide;
  for (std::uint16_t i = 0; i < 64; ++i) narrow.push_back(i), wide.push_back(i);
  EXPECT_NO_THROW(read_all(as_bytes(narrow), 50257));
  EXPECT_THAT(refused(as_bytes(wide)), AllOf(HasSubstr("numbers of 4 bytes"), HasSubstr("numpy.save")));
  EXPECT_NO_THROW(read_all(as_bytes(wide), 70000));
  EXPECT_THAT(refused(as_bytes(std::vector<std::uint64_t>(wide.begin(), wide.end())), 70000),
              HasSubstr("numbers of 8 bytes"));
  EXPECT_NO_THROW(read_all(as_bytes(std::vector<std::uint16_t>(64)), 50257)) << "zeros alone tell nothing";
}

TEST_F(TokenFileTest, FilesOfOtherFormatsAreRefused) {
  const std::string rest(1000, 'x');
  EXPECT_THAT(refused("\x89HDF\r\n\x1a\n" + rest), HasSubstr("HDF5"));
  EXPECT_THAT(refused("PK\x03\x04" + rest), HasSubstr("archive"));
  EXPECT_THAT(refused(npy("<f4", "(2,)", std::string(8, '\0'))), HasSubstr("whole numbers"));
  EXPECT_THAT(refused(npy("<u2", "(2, 2)", as_bytes({1, 2, 3, 4}))), HasSubstr("reshape(-1)"));
  EXPECT_THAT(refused(npy("<u2", "(9,)", as_bytes({1, 2}))), HasSubstr("bad.bin"));
  EXPECT_THAT(refused(npy("<i4", "(2,)", as_bytes<std::int32_t>({1, -1}))), HasSubstr("token 1 is -1"));
}

TEST_F(TokenFileTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refused("abc"), AllOf(HasSubstr("bad.bin"), HasSubstr("3 bytes")));
  EXPECT_THAT(refused(""), HasSubstr("no tokens"));
  EXPECT_THAT(refused(header(1, 3) + as_bytes({1, 2})), AllOf(HasSubstr("1030"), HasSubstr("1028")));
  EXPECT_THAT(refused(header(1, 1) + as_bytes({1, 2})), HasSubstr("1026"));
  EXPECT_THAT(refused(header(2, 2) + as_bytes({1, 2})), HasSubstr("version 2"));
  EXPECT_THAT(refused(header(1, 2, 20240801) + as_bytes<std::uint32_t>({1, 2})), HasSubstr("version 1"));
  EXPECT_THAT(refused(as_bytes({1, 2, 60000})),
              AllOf(HasSubstr("token 2 is 60000"), HasSubstr("50257"), HasSubstr("--vocabulary")));
  EXPECT_THROW(open_tokens({}, 5), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
