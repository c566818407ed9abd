#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "io/datasets/token_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"
#include "io/text/tokenizer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TextSourceTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) {
    write_text(folder_.path() / name, text);
    return folder_.path() / name;
  }
  std::filesystem::path pack(const std::vector<std::filesystem::path>& files, const TextOptions& options,
                             const std::string& name = "corpus") {
    const auto source = open_text(files, options);
    write_shards(*source, {.folder = folder_.path() / name, .overwrite = true}, {});
    return folder_.path() / name;
  }
  /// The whole corpus, decoded: windows of one token, and the answer of the last.
  static std::string text_in(const std::filesystem::path& corpus) {
    const TokenDataset data({.path = corpus, .context = 1});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.info().samples + 1)), answers(1);
    for (std::int64_t i = 0; i < data.info().samples; ++i) {
      data.read({&i, 1}, kNoEpoch, std::as_writable_bytes(std::span(tokens).subspan(static_cast<std::size_t>(i), 1)),
                std::as_writable_bytes(std::span(answers)));
    }
    tokens.back() = answers[0];
    return Tokenizer(*data.info().tokens).decode(tokens);
  }

  TemporaryFolder folder_;
};

TEST_F(TextSourceTest, EveryKindOfTokenHoldsTheText) {
  const std::string text = "To be, or nöt\nto be: that is\n";
  const auto input = file("a.txt", text);
  for (const std::string kind : {"byte", "char", "word"}) {
    const auto corpus = pack({input}, {.tokenizer = kind});
    EXPECT_EQ(text_in(corpus), text) << kind;
    const TokenInfo info = read_vocabulary(corpus);
    EXPECT_EQ(info.kind, kind);
    EXPECT_DOUBLE_EQ(info.bytes_per_token * static_cast<double>(info.tokens), static_cast<double>(text.size()));
    EXPECT_EQ(info.texts.empty(), kind == "byte");
  }
}

TEST_F(TextSourceTest, SeveralFilesAndGzip) {
  const std::string text = "one two";
  const std::filesystem::path packed = folder_.path() / "b.txt.gz";
  gzFile gz = gzopen(packed.c_str(), "wb");
  gzwrite(gz, " three\nfour", 11);
  gzclose(gz);
  EXPECT_EQ(text_in(pack({file("a.txt", text), packed}, {.tokenizer = "char"})), "one two three\nfour");
  const auto words = open_text({file("a.txt", "one tw"), file("c.txt", "o two")}, {.tokenizer = "word"});
  EXPECT_EQ(words->count(), 4) << "a file's end ends a word";
}

TEST_F(TextSourceTest, TextsLongerThanTheBuffer) {
  std::string text;
  for (int i = 0; text.size() < (std::size_t{3} << 20); ++i)
    text += "é" + std::to_string(i % 977) + (i % 7 ? " " : "\n");
  const auto input = file("long.txt", text);
  const auto words = open_text({input}, {.tokenizer = "word"});
  std::int64_t expected = 0;
  std::string_view rest = text;
  for (TextPieces pieces(TokenizerKind::word); pieces.next(rest, true);) ++expected;
  EXPECT_EQ(words->count(), expected);
  const auto characters = open_text({input}, {.tokenizer = "char"});
  EXPECT_EQ(text_in(pack({input}, {.tokenizer = "byte"})), text);
  EXPECT_EQ(characters->token_info()->texts,
            (std::vector<std::string>{"\n", " ", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "é"}));
  EXPECT_THAT(error_text<FileError>([&] { open_text({file("w", std::string(2 << 20, 'x'))}, {.tokenizer = "word"}); }),
              HasSubstr("is this text?"));
}

TEST_F(TextSourceTest, ValidationTakesTheVocabularyOfTraining) {
  const auto train = pack({file("train.txt", "a a b c\n")}, {.tokenizer = "word", .vocabulary = 3}, "train");
  const TokenInfo vocabulary = read_vocabulary(train);
  EXPECT_THAT(vocabulary.texts, ElementsAre("<unk>", "a", "<eos>"));
  EXPECT_EQ(read_vocabulary(folder_.path()).texts, vocabulary.texts) << "the folder that holds train/";
  const auto validation = pack({file("v.txt", "c a zebra\n")}, {.from = vocabulary}, "validation");
  EXPECT_EQ(text_in(validation), "<unk> a <unk>\n");
  EXPECT_EQ(read_vocabulary(validation).texts, vocabulary.texts);

  const TokenInfo closed = read_vocabulary(pack({file("t2.txt", "a b\n")}, {.tokenizer = "word"}, "closed"));
  const auto source = open_text({file("v2.txt", "a b\nzebra a")}, {.from = closed});
  EXPECT_THAT(error_text<FileError>([&] { write_shards(*source, {.folder = folder_.path() / "never"}, {}); }),
              AllOf(HasSubstr("v2.txt: at byte 9"), HasSubstr("'zebra'"), HasSubstr("--vocabulary")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "never"));
  const TokenInfo ids{.kind = "ids", .vocabulary = 9, .texts = {}};
  EXPECT_THAT(error_text<FileError>([&] { open_text({file("v3.txt", "a")}, {.from = ids}); }), HasSubstr("kind ids"));
}

TEST_F(TextSourceTest, WhatCannotBeReadIsNamed) {
  EXPECT_THAT(error_text<FileError>([&] { open_text({file("latin1.txt", "caf\xE9 au lait")}, {.tokenizer = "char"}); }),
              AllOf(HasSubstr("latin1.txt"), HasSubstr("byte 3"), HasSubstr("UTF-8")));
  EXPECT_THAT(error_text<FileError>([&] { open_text({folder_.path() / "none.txt"}, {}); }), HasSubstr("none.txt"));
  EXPECT_THAT(error_text<FileError>([&] { pack({file("empty.txt", "")}, {}); }), HasSubstr("holds no tokens"));
}

TEST_F(TextSourceTest, TheLastPartValidates) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "w" + std::to_string(i % 37) + (i % 5 == 4 ? "  \n" : " ");
  const auto input = file("a.txt", text);
  const OpenSource open = [&] { return open_text({input}, {.tokenizer = "word"}); };
  const auto out = folder_.path() / "split";
  const SplitSummary summary = write_split(open, {.validation = 61}, {.folder = out, .shards = 3}, {});
  EXPECT_EQ(summary.train.samples, 600 - 61);
  EXPECT_EQ(summary.validation.samples, 61);
  EXPECT_EQ(summary.validation.shards, 1);
  const std::string whole = text_in(pack({input}, {.tokenizer = "word"}));
  const std::string train = text_in(out / "train"), validation = text_in(out / "validation");
  EXPECT_TRUE(whole.starts_with(train));
  EXPECT_TRUE(whole.ends_with(validation));
  EXPECT_GE(train.size() + validation.size() + 1, whole.size()) << "but for a blank between them";
  const TokenInfo a = read_vocabulary(out / "train"), b = read_vocabulary(out / "validation");
  EXPECT_EQ(a.texts, b.texts);
  EXPECT_NEAR(a.bytes_per_token * static_cast<double>(a.tokens) + b.bytes_per_token * static_cast<double>(b.tokens),
              static_cast<double>(text.size()), 1e-6);
}

}  // namespace
}  // namespace lockstep::io
