#include "io/text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "io/io_test_support.hpp"
#include "io/text/utf8.hpp"
#include "io/text/vocabulary.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> pieces(TokenizerKind kind, std::string_view text) {
  TextPieces cutter(kind);
  std::vector<std::string> result;
  while (const auto piece = cutter.next(text, true)) result.emplace_back(*piece);
  EXPECT_TRUE(text.empty());
  return result;
}

TokenInfo vocabulary(TokenizerKind kind, std::string_view text, std::int64_t limit = 0) {
  VocabularyCounter counter;
  for (const std::string& piece : pieces(kind, text)) counter.add(piece);
  return counter.finish(kind, limit);
}

TEST(TextPiecesTest, BytesCharactersAndWords) {
  EXPECT_THAT(pieces(TokenizerKind::byte, "é\xFF"), ElementsAre("\xC3", "\xA9", "\xFF"));
  EXPECT_THAT(pieces(TokenizerKind::character, "aé€😀\n"), ElementsAre("a", "é", "€", "😀", "\n"));
  EXPECT_THAT(pieces(TokenizerKind::word, "  the cat\t sat \n\non\r\nit"),
              ElementsAre("the", "cat", "sat", "<eos>", "<eos>", "on", "<eos>", "it"));
}

TEST(TextPiecesTest, APieceThatReachesTheEndOfAPartWaits) {
  const std::string text = "one  two\nthr€e 😀";
  for (const TokenizerKind kind : {TokenizerKind::character, TokenizerKind::word}) {
    for (std::size_t step = 1; step <= text.size(); ++step) {  // as a reader with a buffer does it
      TextPieces cutter(kind);
      std::vector<std::string> result;
      std::string buffer;
      for (std::size_t at = 0; at < text.size(); at += step) {
        buffer += text.substr(at, step);
        std::string_view rest = buffer;
        while (const auto piece = cutter.next(rest, at + step >= text.size())) result.emplace_back(*piece);
        buffer = std::string(rest);
      }
      EXPECT_EQ(result, pieces(kind, text)) << step;
      EXPECT_EQ(cutter.position(), text.size());
    }
  }
}

TEST(TextPiecesTest, WhatIsNoUtf8IsRefusedWithItsPlace) {
  for (const std::string bad :
       {"\x80", "\xC1\x81", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5", "\xE2\x82", "\xC3x"}) {
    EXPECT_THAT(error_text<FileError>([&] { pieces(TokenizerKind::character, "ab" + bad); }),
                AllOf(HasSubstr("byte 2"), HasSubstr("UTF-8")));
    EXPECT_THAT(error_text<FileError>([&] { pieces(TokenizerKind::word, "ab" + bad); }), HasSubstr("byte 2"));
  }
  EXPECT_EQ(code_point_bytes("\xF4\x8F\xBF\xBF"), 4U) << "the last one there is";
  EXPECT_EQ(code_point_bytes("\xED\x9F\xBF"), 3U) << "the last one before the surrogates";
}

TEST(VocabularyTest, WordsByFrequencyThenText) {
  const TokenInfo all = vocabulary(TokenizerKind::word, "b a b c\na b");
  EXPECT_EQ(all.kind, "word");
  EXPECT_THAT(all.texts, ElementsAre("b", "a", "<eos>", "c"));
  EXPECT_EQ(all.unknown, -1);
  const TokenInfo some = vocabulary(TokenizerKind::word, "b a b c\na b", 3);
  EXPECT_THAT(some.texts, ElementsAre("<unk>", "b", "a"));
  EXPECT_EQ(some.unknown, 0);
  EXPECT_EQ(some.vocabulary, 3);
  EXPECT_THAT(vocabulary(TokenizerKind::word, "b a", 100).texts, ElementsAre("<unk>", "a", "b"));
  const TokenInfo own = vocabulary(TokenizerKind::word, "b <unk> <unk> a");
  EXPECT_THAT(own.texts, ElementsAre("<unk>", "a", "b"));
  EXPECT_EQ(own.unknown, 0);
  EXPECT_THAT(vocabulary(TokenizerKind::word, "b <unk> a b", 3).texts, ElementsAre("<unk>", "b", "a"));
}

TEST(VocabularyTest, CharactersByCodePoint) {
  EXPECT_THAT(vocabulary(TokenizerKind::character, "zé\naz€").texts, ElementsAre("\n", "a", "z", "é", "€"));
  EXPECT_THAT(vocabulary(TokenizerKind::character, "zé\nazé", 3).texts, ElementsAre("<unk>", "z", "é"));
  EXPECT_EQ(vocabulary(TokenizerKind::byte, "abc").vocabulary, 256);
}

TEST(TokenizerTest, ThereAndBackAgain) {
  const std::string text = "To be, or not\nto bé: €\n";
  const Tokenizer bytes(vocabulary(TokenizerKind::byte, text));
  EXPECT_EQ(bytes.decode(bytes.encode(text)), text);
  EXPECT_EQ(bytes.encode("\xFF"), std::vector<std::int32_t>{255});
  const Tokenizer characters(vocabulary(TokenizerKind::character, text));
  EXPECT_EQ(characters.decode(characters.encode(text)), text);
  const Tokenizer words(vocabulary(TokenizerKind::word, text));
  EXPECT_EQ(words.decode(words.encode(text)), text);
  const std::vector<std::int32_t> tokens = words.encode("be, or\nnot");
  EXPECT_EQ(words.separator(tokens[0], tokens[1]), " ");
  EXPECT_EQ(words.separator(tokens[1], tokens[2]), "");
  EXPECT_EQ(words.text_of(tokens[2]), "\n");
}

TEST(TokenizerTest, UnknownPiecesAreTheUnknownTokenOrAnError) {
  const Tokenizer with(vocabulary(TokenizerKind::word, "a b", 5));
  EXPECT_THAT(with.encode("b zebra a"), ElementsAre(2, 0, 1));
  EXPECT_EQ(with.decode(std::vector<std::int32_t>{2, 0, 1}), "b <unk> a");
  const Tokenizer without(vocabulary(TokenizerKind::word, "a b"));
  EXPECT_THAT(error_text<FileError>([&] { without.encode("b zebra"); }),
              AllOf(HasSubstr("'zebra'"), HasSubstr("<unk>")));
  const Tokenizer characters(vocabulary(TokenizerKind::character, "ab"));
  EXPECT_THAT(error_text<FileError>([&] { characters.encode("a\x01"); }), HasSubstr("'\\x01'"));
  EXPECT_THROW(characters.text_of(2), std::invalid_argument);
  EXPECT_THROW(characters.text_of(-1), std::invalid_argument);
}

TEST(TokenizerTest, NeedsTexts) {
  EXPECT_THAT(error_text<FileError>([] { Tokenizer({.kind = "ids", .vocabulary = 9, .texts = {}}); }),
              HasSubstr("no texts"));
  EXPECT_THAT(error_text<FileError>([] {
                Tokenizer({.kind = "word", .vocabulary = 2, .texts = {"ab", "ab"}});
              }),
              HasSubstr("'ab' twice"));
  EXPECT_THAT(error_text<FileError>([] {
                Tokenizer({.kind = "char", .vocabulary = 2, .texts = {"a", "a"}});
              }),
              HasSubstr("'a' twice"));
}

TEST(TokenInfoTest, JsonThereAndBackAgain) {
  TokenInfo info = vocabulary(TokenizerKind::word, "b é \"quoted\" \\ a\n", 4);
  info.tokens = 1234567;
  info.bytes_per_token = 7654321.0 / 1234567;
  EXPECT_EQ(token_info_from_json(to_json(info)), info);
  EXPECT_EQ(to_json(info).find('\n'), std::string::npos);
  const TokenInfo ids{.kind = "ids", .vocabulary = 50257, .texts = {}, .tokens = 9};
  EXPECT_EQ(token_info_from_json(to_json(ids)), ids);
}

TEST(TokenInfoTest, DamagedJsonIsRefused) {
  const auto refused = [](const TokenInfo& info) {
    return error_text<FileError>([&] { token_info_from_json(to_json(info)); });
  };
  EXPECT_THAT(error_text<FileError>([] { token_info_from_json("{"); }), HasSubstr("vocabulary is damaged"));
  EXPECT_THAT(error_text<FileError>([] { token_info_from_json("{}"); }), HasSubstr("kind"));
  EXPECT_THAT(refused({.kind = "word", .vocabulary = 2, .texts = {"a"}}), HasSubstr("a text for every token"));
  EXPECT_THAT(refused({.kind = "word", .vocabulary = 2, .texts = {}}), HasSubstr("no texts"));
  EXPECT_THAT(refused({.kind = "byte", .vocabulary = 255, .texts = {}}), HasSubstr("256"));
  EXPECT_THAT(refused({.kind = "ids", .vocabulary = 5, .texts = {}, .tokens = -1}), HasSubstr("negative"));
}

}  // namespace
}  // namespace lockstep::io
