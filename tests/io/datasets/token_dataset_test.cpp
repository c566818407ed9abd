#include "io/datasets/token_dataset.hpp"

#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_corpus.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Window {
  std::vector<std::int32_t> x, y;
};

Window read_window(const Dataset& data, std::int64_t sample, std::int64_t epoch) {
  Window window{std::vector<std::int32_t>(data.x_bytes() / 4), std::vector<std::int32_t>(data.y_bytes() / 4)};
  data.read({&sample, 1}, epoch, std::as_writable_bytes(std::span(window.x)),
            std::as_writable_bytes(std::span(window.y)));
  return window;
}

class TokenDatasetTest : public testing::Test {
 protected:
  std::filesystem::path write(const MemoryCorpus::Options& options, std::int64_t shards) {
    MemoryCorpus source(options);
    const std::filesystem::path folder = folder_.path() / "corpus";
    write_shards(source, {.folder = folder, .shards = shards, .overwrite = true}, {});
    return folder;
  }
  /// Foreign files: one dataset `tokens` of any type and shape.
  std::filesystem::path write_foreign(FileType type, const std::vector<std::int64_t>& shape) {
    const std::filesystem::path path = folder_.path() / "foreign.h5";
    Hdf5File file(path, Hdf5File::Access::create);
    file.create_dataset("tokens", type, shape);
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(type));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = expected_token(i, 100);
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size_of(type), &token, size_of(type));
    }
    file.write("tokens", type, bytes);
    file.close();
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(TokenDatasetTest, WindowsCrossShardsOfEveryType) {
  for (const auto& [vocabulary, shards, context] :
       {std::tuple{50, 1, 7}, std::tuple{256, 7, 1}, std::tuple{257, 9, 64}, std::tuple{65537, 300, 5}}) {
    const TokenDataset data({.path = write({.tokens = 1000, .vocabulary = vocabulary}, shards), .context = context});
    EXPECT_EQ(data.info().samples, (1000 - context) / context);
    EXPECT_EQ(data.info().classes, vocabulary);
    EXPECT_EQ(data.info().tokens->tokens, 1000);
    EXPECT_EQ(data.info().tokens->bytes_per_token, 3);
    EXPECT_EQ(data.stored_bytes(), static_cast<std::size_t>(context) * (vocabulary <= 256     ? 1
                                                                        : vocabulary <= 65536 ? 2
                                                                                              : 4));
    EXPECT_EQ(data.shards().size(), static_cast<std::size_t>(shards));
    for (std::int64_t sample = 0; sample < data.info().samples; ++sample) {
      const Window window = read_window(data, sample, kNoEpoch);
      for (std::int64_t t = 0; t < context; ++t) {
        ASSERT_EQ(window.x[static_cast<std::size_t>(t)], expected_token(sample * context + t, vocabulary));
        ASSERT_EQ(window.y[static_cast<std::size_t>(t)], expected_token(sample * context + t + 1, vocabulary));
      }
    }
  }
}

TEST_F(TokenDatasetTest, LongWindowsTakeSeveralReads) {
  const TokenDataset data({.path = write({.tokens = 20000, .vocabulary = 300}, 3), .context = 5000});
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    const Window window = read_window(data, sample, kNoEpoch);
    for (std::size_t t = 0; t < 5000; ++t) {
      ASSERT_EQ(window.x[t], expected_token(sample * 5000 + static_cast<std::int64_t>(t), 300));
      ASSERT_EQ(window.y[t], expected_token(sample * 5000 + static_cast<std::int64_t>(t) + 1, 300));
    }
  }
}

/// The token of position i is i: a window shows its beginning.
TEST_F(TokenDatasetTest, EachEpochBeginsElsewhereAndIsWithoutGaps) {
  const auto path = write({.tokens = 1000, .vocabulary = 1000, .token = [](std::int64_t i) { return i; }}, 3);
  const TokenDataset data({.path = path, .context = 16, .seed = 5});
  const TokenDataset twin({.path = path, .context = 16, .seed = 5});
  const TokenDataset other({.path = path, .context = 16, .seed = 6});
  std::set<std::int32_t> shifts;
  int equal = 0;
  for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
    const std::int32_t shift = read_window(data, 0, epoch).x[0];
    EXPECT_GE(shift, 0);
    EXPECT_LT(shift, 16);
    shifts.insert(shift);
    equal += read_window(other, 0, epoch).x[0] == shift ? 1 : 0;
    EXPECT_EQ(read_window(twin, 0, epoch).x[0], shift);
    for (const std::int64_t sample : {std::int64_t{1}, std::int64_t{30}, data.info().samples - 1}) {
      const Window window = read_window(data, sample, epoch);
      EXPECT_EQ(window.x.front(), sample * 16 + shift);
      EXPECT_EQ(window.x.back(), sample * 16 + shift + 15);
      EXPECT_EQ(window.y.back(), sample * 16 + shift + 16);
    }
  }
  EXPECT_EQ(shifts.size(), 16U) << "every shift occurs";
  EXPECT_LT(equal, 40) << "another seed shifts otherwise";
  EXPECT_EQ(read_window(data, 0, kNoEpoch).x[0], 0);
}

TEST_F(TokenDatasetTest, NeedsTwoWindows) {
  const auto path = write({.tokens = 100}, 1);
  EXPECT_EQ(TokenDataset({.path = path, .context = 50}).info().samples, 1);
  EXPECT_THAT(error_text<FileError>([&] { TokenDataset({.path = path, .context = 51}); }),
              AllOf(HasSubstr("100 tokens"), HasSubstr("102 at least"), HasSubstr("smaller context")));
  EXPECT_THROW(TokenDataset({.path = path, .context = 0}), std::invalid_argument);
}

TEST_F(TokenDatasetTest, RefusesWrongBuffersAndWindows) {
  const TokenDataset data({.path = write({.tokens = 100}, 1), .context = 10});
  std::vector<std::byte> x(40), y(39);
  const std::int64_t first = 0, beyond = 9;
  EXPECT_THROW(data.read({&first, 1}, kNoEpoch, x, y), std::invalid_argument);
  y.resize(40);
  EXPECT_THROW(data.read({&beyond, 1}, kNoEpoch, x, y), std::invalid_argument);
  EXPECT_THROW(data.verify(1, 1), std::invalid_argument);
}

TEST_F(TokenDatasetTest, TokensOutsideTheVocabularyAreMet) {
  EXPECT_THAT(error_text<FileError>([&] {
                write({.tokens = 100, .vocabulary = 50, .token = [](std::int64_t i) { return i == 77 ? 50 : 1; }}, 2);
              }),
              AllOf(HasSubstr("token 77 is 50"), HasSubstr("vocabulary of 50")));

  const auto path = write({.tokens = 100, .vocabulary = 50}, 2);
  const auto file = path / "shard-00001.h5";
  const std::uint64_t at = Hdf5File(file, Hdf5File::Access::read).layout("tokens").offset.value();
  std::string bytes = read_text(file);
  bytes[at + 7] = 50;
  write_text(file, bytes);
  const TokenDataset data({.path = path, .context = 10});
  EXPECT_NO_THROW(read_window(data, 0, kNoEpoch));
  const auto told = AllOf(HasSubstr("shard-00001.h5"), HasSubstr("token 7 is 50"), HasSubstr("vocabulary of 50"));
  EXPECT_THAT(error_text<FileError>([&] { read_window(data, 5, kNoEpoch); }), told);
  EXPECT_THAT(error_text<FileError>([&] { data.verify(0, 1); }), told);
  EXPECT_EQ(data.verify(0, 2), 50U) << "the first shard is sound";
  bytes[at + 7] = 49;
  write_text(file, bytes);
  EXPECT_THAT(error_text<FileError>([&] { data.verify(0, 1); }), AllOf(HasSubstr("damaged"), HasSubstr("checksum")));
}

TEST_F(TokenDatasetTest, ReadsFilesMadeByOthers) {
  for (const FileType type : {FileType::uint8, FileType::uint16, FileType::int32, FileType::int64, FileType::uint64}) {
    const auto path = write_foreign(type, {500});
    const TokenDataset data({.path = path, .context = 20});
    EXPECT_EQ(data.info().classes, 100);
    EXPECT_EQ(data.info().tokens->kind, "ids");
    const Window window = read_window(data, 3, kNoEpoch);
    for (std::size_t t = 0; t < 20; ++t) EXPECT_EQ(window.x[t], expected_token(60 + static_cast<std::int64_t>(t), 100));
  }
  EXPECT_THAT(
      error_text<FileError>([&] { TokenDataset({.path = write_foreign(FileType::float32, {500}), .context = 5}); }),
      HasSubstr("no corpus of tokens"));
  EXPECT_THAT(error_text<FileError>([&] {
                TokenDataset({.path = write_foreign(FileType::int32, {50, 10}), .context = 5});
              }),
              HasSubstr("no corpus of tokens"));
}

TEST_F(TokenDatasetTest, SamplesAndCorporaAreNotTakenForEachOther) {
  const auto corpus = write({.tokens = 100}, 1);
  MemorySource source({});
  const auto samples = folder_.path() / "samples";
  write_shards(source, {.folder = samples}, {});
  EXPECT_TRUE(holds_tokens(corpus));
  EXPECT_FALSE(holds_tokens(samples));
  EXPECT_FALSE(holds_tokens(folder_.path() / "nothing"));
  EXPECT_THAT(error_text<FileError>([&] { ShardedDataset({.path = corpus}); }), HasSubstr("corpus of tokens"));
  EXPECT_THAT(error_text<FileError>([&] { TokenDataset({.path = samples, .context = 4}); }),
              HasSubstr("holds samples"));
  write_text(corpus / kManifestName, "{}");
  EXPECT_THROW(holds_tokens(corpus), FileError);
}

TEST_F(TokenDatasetTest, TheFingerprintTellsDataApart) {
  const auto print = [&](std::int64_t tokens, std::int64_t vocabulary, std::int64_t shards, std::int64_t context) {
    const auto path = write({.tokens = tokens, .vocabulary = vocabulary}, shards);
    return TokenDataset({.path = path, .context = context}).fingerprint();
  };
  const std::string base = print(1000, 50, 1, 10);
  EXPECT_EQ(print(1000, 50, 1, 10), base);
  EXPECT_NE(print(999, 50, 1, 10), base);
  EXPECT_NE(print(1000, 51, 1, 10), base);
  EXPECT_NE(print(1000, 50, 1, 11), base);
}

TEST_F(TokenDatasetTest, AManifestThatContradictsItselfIsRefused) {
  const auto path = write({.tokens = 100}, 1);
  const std::string text = read_text(path / kManifestName);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string edited = text;
    const std::size_t at = edited.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    edited.replace(at, from.size(), to);
    const std::size_t sum = edited.find("\"checksum\"");
    edited.replace(sum, edited.find(',', sum) - sum + 1, "");
    write_text(path / kManifestName, edited);
    return error_text<FileError>([&] { TokenDataset({.path = path, .context = 4}); });
  };
  EXPECT_THAT(changed("\"kind\": \"ids\"", "\"kind\": \"idea\""), HasSubstr("none of byte, char, word, bpe, ids"));
  EXPECT_THAT(changed("\"vocabulary\": 50", "\"vocabulary\": 0"), HasSubstr("impossible size"));
  EXPECT_THAT(changed("\"unknown\": -1", "\"unknown\": 50"), HasSubstr("unknown"));
  EXPECT_THAT(changed("\"tokens\": 100", "\"tokens\": 99"), HasSubstr("99"));
  EXPECT_THAT(changed("\"type\": \"uint8\"", "\"type\": \"float32\""), HasSubstr("not tokens alone"));
}

}  // namespace
}  // namespace lockstep::io
