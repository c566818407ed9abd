#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "io/io_test_support.hpp"
#include "io/text/byte_letters.hpp"
#include "io/text/byte_pair_training.hpp"
#include "io/text/byte_pair_words.hpp"
#include "io/text/character_class.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/tokenizer_files.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  TextPieces pieces(TokenizerKind::byte_pair);
  while (const auto word = pieces.next(text, true)) words.emplace_back(*word);
  return words;
}

/// The bytes, the tokens of these merges, and <|end|>.
TokenInfo small_vocabulary(const std::vector<std::string>& merges) {
  TokenInfo info{.kind = "bpe"};
  for (const std::uint8_t byte : bytes_by_letter()) {
    const char letter = static_cast<char>(byte);
    info.texts.push_back(letters_of({&letter, 1}));
  }
  for (std::string merge : merges) {
    info.merges.push_back(merge);
    info.texts.push_back(merge.erase(merge.find(' '), 1));
  }
  info.added = {static_cast<std::int64_t>(info.texts.size())};
  info.texts.emplace_back("<|end|>");
  info.vocabulary = static_cast<std::int64_t>(info.texts.size());
  return info;
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> texts;
  for (const std::int32_t token : tokenizer.encode(text)) texts.emplace_back(tokenizer.text_of(token));
  return texts;
}

TEST(CharacterClassTest, KnowsTheFourClasses) {
  EXPECT_EQ(character_class('a'), CharacterClass::letter);
  EXPECT_EQ(character_class(0x4E2D), CharacterClass::letter);
  EXPECT_EQ(character_class(0x1C89), CharacterClass::letter) << "new in Unicode 16.0";
  EXPECT_EQ(character_class(0xBD), CharacterClass::number) << "one half";
  EXPECT_EQ(character_class(0x3000), CharacterClass::space);
  EXPECT_EQ(character_class(0x1C), CharacterClass::other);
  EXPECT_EQ(character_class(0x10FFFF), CharacterClass::other);
}

TEST(BytePairWordsTest, AreThoseOfGpt2sPattern) {
  EXPECT_THAT(words_of("I'll say it's 12 o'clock!?  x"),
              ElementsAre("I", "'ll", " say", " it", "'s", " 12", " o", "'", "clock", "!?", " ", " x"));
  EXPECT_THAT(words_of("a \n\n b \t"), ElementsAre("a", " \n\n", " b", " \t"));
  EXPECT_THAT(words_of("a\nb"), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(words_of("é½\xFFz"), ElementsAre("é", "½", "\xFF", "z")) << "what is no UTF-8 is other";
  EXPECT_THAT(words_of("it'S"), ElementsAre("it", "'", "S"));
}

TEST(BytePairWordsTest, AsciiIsAsTheTableHasIt) {
  for (char letter = 0; letter >= 0 && letter < 127; ++letter) {
    const CharacterClass kind = character_class(static_cast<std::uint32_t>(letter));
    const bool joins = words_of(std::string("a") + letter).size() == 1;
    EXPECT_EQ(joins, kind == CharacterClass::letter) << int{letter};
  }
}

TEST(BytePairWordsTest, AreTheSameInWhateverPartsTheTextComes) {
  const std::string text = "don't  'l 'll é中 <|end|> \n x12<|end<|end|>\xE4\xB8 y  ";
  const Tokenizer tokenizer(small_vocabulary({}));
  std::vector<std::string> whole;
  TextPieces pieces = tokenizer.pieces();
  for (std::string_view rest = text; const auto piece = pieces.next(rest, true);) whole.emplace_back(*piece);
  EXPECT_THAT(whole, testing::Contains("<|end|>"));
  for (std::size_t step = 1; step < text.size(); ++step) {
    std::vector<std::string> parts;
    TextPieces cutter = tokenizer.pieces();
    std::size_t taken = 0;
    for (std::size_t known = step;; known += step) {
      const bool last = known >= text.size();
      std::string_view rest = std::string_view(text).substr(taken, std::min(known, text.size()) - taken);
      while (const auto piece = cutter.next(rest, last)) {
        parts.emplace_back(*piece);
        taken += piece->size();
      }
      if (last) break;
    }
    EXPECT_EQ(parts, whole) << step;
  }
}

TEST(ByteLettersTest, EachByteHasOneOfItsOwn) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_letters(letters_of(bytes)), bytes);
  EXPECT_EQ(letters_of(" \n!"), "ĠĊ!");
  EXPECT_EQ(bytes_of_letters("中"), std::nullopt);
  EXPECT_EQ(bytes_of_letters("\xC4"), std::nullopt);
}

TEST(BytePairTest, TheLowestRankComesFirstAndTheLeftmostOfEquals) {
  const Tokenizer tokenizer(small_vocabulary({"b c", "a b", "a a", "bc d"}));
  EXPECT_THAT(tokens_of(tokenizer, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(tokens_of(tokenizer, "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(tokens_of(tokenizer, "aaaaa"), ElementsAre("aa", "aa", "a"));
  EXPECT_THAT(tokens_of(tokenizer, "abcd"), ElementsAre("a", "bcd"));
  EXPECT_THAT(tokens_of(tokenizer, "a<|end|>b"), ElementsAre("a", "<|end|>", "b"));
}

TEST(BytePairTest, LongWordsAreMergedAsShortOnesAre) {
  const Tokenizer tokenizer(small_vocabulary({"b c", "a b", "a a", "bc d", "aa aa", "ab aa", "d d", "dd a"}));
  const std::string_view letters = "abcd";
  std::uint32_t random = 1;
  const auto next = [&] { return (random = random * 1664525 + 1013904223) >> 16; };
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (std::uint32_t i = 0; i < 2 + next() % 50; ++i) word += letters[next() % 4];
    // Digits are in no merge, so that the long word's tokens repeat the short one's.
    BytePairEncoder encoder(tokenizer.info());
    std::vector<std::int32_t> once, often;
    encoder.append(word + "0", once);
    std::string repeated;
    for (int i = 0; i < 40; ++i) repeated += word + "0";
    encoder.append(repeated, often);
    std::vector<std::int32_t> expected;
    for (int i = 0; i < 40; ++i) expected.insert(expected.end(), once.begin(), once.end());
    EXPECT_EQ(often, expected) << word;
  }
}

TEST(BytePairTest, AnyBytesComeBack) {
  const Tokenizer tokenizer(small_vocabulary({"t h", "Ġ th", "Ġth e"}));
  const std::string text = "the the\xFF\xC3 é\n \xF0\x9F\x98\x80<|end|>";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(BytePairTest, TheJsonHasAllOfIt) {
  const TokenInfo info = small_vocabulary({"t h", "Ġ th"});
  EXPECT_EQ(token_info_from_json(to_json(info)), info);
}

TEST(BytePairTrainerTest, TheMostFrequentPairComesFirstAndTheSmallestOfEquals) {
  BytePairTrainer trainer;
  for (const char* word : {"abab", "abab", "cd", "cd", "cd", "xy"}) trainer.add(word);
  const TokenInfo info = trainer.finish(1000);
  // "a b" 4 times, "c d" 3 times, then "ab ab" twice; "b a" was there twice before "a b" was merged. "x y" is there
  // once.
  EXPECT_THAT(info.merges, ElementsAre("a b", "c d", "ab ab"));
  EXPECT_EQ(info.vocabulary, 256 + 3 + 1);
  EXPECT_EQ(info.texts.back(), "<|endoftext|>");

  BytePairTrainer equal;
  for (const char* word : {"zb", "ac", "ab", "\xFF!", "zb", "ac", "ab", "\xFF!"}) equal.add(word);
  EXPECT_THAT(equal.finish(1000).merges, ElementsAre("a b", "a c", "z b", "ÿ !"));
  EXPECT_THAT(equal.finish(259).merges, ElementsAre("a b", "a c"));
  EXPECT_THROW(equal.finish(256), std::invalid_argument);
}

TEST(BytePairTrainerTest, IsWhatCountingAnewForEachMergeFinds) {
  const std::string_view letters = "abc";
  std::uint32_t random = 7;
  const auto next = [&] { return (random = random * 1664525 + 1013904223) >> 16; };
  for (int round = 0; round < 30; ++round) {
    BytePairTrainer trainer;
    std::vector<std::vector<std::string>> words;
    for (int i = 0; i < 20; ++i) {
      std::string word;
      auto& symbols = words.emplace_back();
      for (std::uint32_t k = 0; k < 1 + next() % 9; ++k) symbols.emplace_back(1, letters[next() % 3]);
      for (const std::string& symbol : symbols) word += symbol;
      trainer.add(word);
    }
    std::vector<std::string> expected;
    std::set<std::string> known;
    while (true) {
      std::map<std::pair<std::string, std::string>, int> counts;
      for (const auto& word : words) {
        for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
      }
      std::erase_if(counts, [&](const auto& one) { return known.contains(one.first.first + one.first.second); });
      const auto best = std::max_element(counts.begin(), counts.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      if (best == counts.end() || best->second < 2) break;
      const auto [left, right] = best->first;
      expected.push_back(left + " " + right);
      known.insert(left + right);
      for (auto& word : words) {
        for (std::size_t i = 0; i + 1 < word.size(); ++i) {
          if (word[i] != left || word[i + 1] != right) continue;
          word[i] += right;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
    EXPECT_EQ(trainer.finish(100000).merges, expected) << round;
  }
}

TEST(TokenizerFilesTest, AreReadAsTheyAreWritten) {
  const TemporaryFolder folder;
  const TokenInfo info = small_vocabulary({"t h", "Ġ th"});
  write_tokenizer_files(folder.path() / "new", info);
  EXPECT_EQ(read_tokenizer_files(folder.path() / "new"), info);
}

TEST(TokenizerFilesTest, DamageIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const auto refusal = [&] { return error_text<FileError>([&] { read_tokenizer_files(folder.path()); }); };
  EXPECT_THAT(refusal(), HasSubstr("holds no tokenizer"));
  write_tokenizer_files(folder.path(), small_vocabulary({"t h", "Ġ th"}));
  const auto merges = folder.path() / "merges.txt";
  write_text(merges, "#version: 0.2\nt h\nonly\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("merges.txt"), HasSubstr("line 3")));
  write_text(merges, "t h\nt h\n");
  EXPECT_THAT(refusal(), HasSubstr("stands twice"));
  write_text(merges, "t x\n");
  EXPECT_THAT(refusal(), HasSubstr("the vocabulary lacks"));
  write_text(folder.path() / "vocab.json", "{\"a\": 0, \"b\": 7}");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("vocab.json"), HasSubstr("'b'")));
  write_text(folder.path() / "vocab.json", "{\"a\": 0}");
  EXPECT_THAT(refusal(), HasSubstr("no token for byte"));
}

TEST(TokenizerFilesTest, AFileStandsForItsFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text<FileError>([&] { read_tokenizer_files(folder.path() / "tokenizer.json"); }),
              HasSubstr("holds no tokenizer"));
  write_text(folder.path() / "tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  EXPECT_THAT(error_text<FileError>([&] { read_tokenizer_files(folder.path() / "tokenizer.json"); }),
              HasSubstr("not of the type BPE"));
}

TEST(TokenizerFilesTest, ATokenizerThatWorksOtherwiseIsRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    write_text(folder.path() / "tokenizer.json", text);
    return error_text<FileError>([&] { read_tokenizer_files(folder.path()); });
  };
  EXPECT_THAT(refusal("{\"model\": {\"type\": \"Unigram\"}}"), HasSubstr("not of the type BPE"));
  EXPECT_THAT(refusal("{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"Split\"}}"),
              HasSubstr("another way than GPT-2"));
  EXPECT_THAT(refusal("{\"normalizer\": {\"type\": \"NFC\"}, \"model\": {\"type\": \"BPE\"}}"),
              AllOf(HasSubstr("normalizer"), HasSubstr("--format tokens"), Not(HasSubstr("copy it again"))));
}

TEST(TokenizerFilesTest, APostProcessorMayAddNothing) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& after) {
    write_text(folder.path() / "tokenizer.json",
               "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
               "\"ByteLevel\"}, \"post_processor\": " +
                   after + "}");
    return error_text<FileError>([&] { read_tokenizer_files(folder.path()); });
  };
  const std::string text = "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}",
                    end = "{\"SpecialToken\": {\"id\": \"<end>\", \"type_id\": 0}}";
  const auto of = [](const std::string& single) {
    return "{\"type\": \"TemplateProcessing\", \"single\": [" + single + "], \"special_tokens\": {}}";
  };
  for (const std::string& nothing : {std::string("null"), std::string("{\"type\": \"ByteLevel\"}"), of(text),
                                     "{\"type\": \"Sequence\", \"processors\": [" + of(text) + "]}"}) {
    EXPECT_THAT(refusal(nothing), HasSubstr("no token for byte")) << "the vocabulary is read";
  }
  for (const std::string& something :
       {of(text + ", " + end), of(text + ", " + text), std::string("{\"type\": \"Bert\"}"),
        "{\"type\": \"Sequence\", \"processors\": [" + of(text + ", " + end) + "]}"}) {
    EXPECT_THAT(refusal(something), HasSubstr("adds tokens to every text"));
  }
}

}  // namespace
}  // namespace lockstep::io
