#include <cmath>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_corpus.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// x of sample i is i.
MemorySource::Options numbered(std::int64_t samples) {
  return {
      .samples = samples, .x_type = FileType::float32, .x_shape = {1}, .value = [](std::int64_t sample, std::int64_t) {
        return static_cast<double>(sample);
      }};
}

std::vector<std::int64_t> samples_in(const std::filesystem::path& folder) {
  const ShardedDataset data({.path = folder});
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < data.info().samples; ++i) {
    float x = 0;
    std::int32_t y = 0;
    data.read({&i, 1}, kNoEpoch, std::as_writable_bytes(std::span(&x, 1)), std::as_writable_bytes(std::span(&y, 1)));
    EXPECT_EQ(y, static_cast<std::int64_t>(x) % 5) << "x and y stay together";
    result.push_back(static_cast<std::int64_t>(x));
  }
  return result;
}

class SplitTest : public testing::Test {
 protected:
  SplitSummary split(std::int64_t samples, const SplitOptions& options, const std::string& name,
                     bool overwrite = false) {
    const OpenSource open = [&] { return std::make_unique<MemorySource>(numbered(samples)); };
    return write_split(open, options, {.folder = folder_.path() / name, .shards = 4, .overwrite = overwrite}, {});
  }
  TemporaryFolder folder_;
};

TEST_F(SplitTest, EverySampleIsInOnePart) {
  for (const std::int64_t count : {1, 10, 250, 900}) {
    const std::string name = std::to_string(count);
    const SplitSummary summary = split(1000, {.validation = count}, name);
    EXPECT_EQ(summary.validation.samples, count);
    const auto train = samples_in(folder_.path() / name / "train");
    const auto validation = samples_in(folder_.path() / name / "validation");
    EXPECT_EQ(validation.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
    std::set<std::int64_t> all(train.begin(), train.end());
    all.insert(validation.begin(), validation.end());
    EXPECT_EQ(all.size(), 1000U);
    EXPECT_EQ(train.size() + validation.size(), 1000U);
  }
}

TEST_F(SplitTest, TheChoiceIsTheSeedsAndIsEven) {
  split(1000, {.validation = 200, .seed = 1}, "a");
  split(1000, {.validation = 200, .seed = 1}, "b");
  split(1000, {.validation = 200, .seed = 2}, "c");
  const auto a = samples_in(folder_.path() / "a/validation");
  EXPECT_EQ(a, samples_in(folder_.path() / "b/validation"));
  EXPECT_NE(a, samples_in(folder_.path() / "c/validation"));
  const auto first_half = std::count_if(a.begin(), a.end(), [](std::int64_t sample) { return sample < 500; });
  EXPECT_GT(first_half, 70);
  EXPECT_LT(first_half, 130);
}

TEST_F(SplitTest, MeansForMissingCellsAreThoseOfTheTrainingPart) {
  const std::filesystem::path table = folder_.path() / "holes.csv";
  std::ofstream(table) << "a,b\n,0\n1,0\n,1\n10,1\n100,2\n1000,2\n10000,3\n100000,3\n";
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::string name = "holes" + std::to_string(seed);
    const OpenSource open = [&] {
      return open_csv(table, {.label_column = "b", .missing = CsvOptions::Missing::mean});
    };
    write_split(open, {.validation = 3, .seed = seed}, {.folder = folder_.path() / name}, {});
    std::vector<float> filled;
    double sum = 0, numbers = 0;
    for (const char* part : {"train", "validation"}) {
      const ShardedDataset data({.path = folder_.path() / name / part});
      for (std::int64_t i = 0; i < data.info().samples; ++i) {
        float x = 0;
        std::int32_t y = 0;
        data.read({&i, 1}, kNoEpoch, std::as_writable_bytes(std::span(&x, 1)),
                  std::as_writable_bytes(std::span(&y, 1)));
        const auto digits = std::lround(std::log10(x));
        if (x != static_cast<float>(std::pow(10, digits))) {
          filled.push_back(x);
        } else if (std::string(part) == "train") {
          sum += x;
          ++numbers;
        }
      }
    }
    ASSERT_EQ(filled.size(), 2U) << "no mean is a power of ten";
    for (const float x : filled) EXPECT_FLOAT_EQ(x, static_cast<float>(sum / numbers)) << seed;
  }
}

TEST_F(SplitTest, ColumnsWithoutGapsRecordTheMeanOfTheTrainingPart) {
  const std::filesystem::path table = folder_.path() / "whole.csv";
  std::ofstream(table) << "a,b\n1,0\n10,0\n100,1\n1000,1\n10000,2\n100000,2\n";
  const OpenSource open = [&] { return open_csv(table, {.label_column = "b", .missing = CsvOptions::Missing::mean}); };
  write_split(open, {.validation = 2}, {.folder = folder_.path() / "whole"}, {});
  const ShardedDataset train({.path = folder_.path() / "whole/train"});
  double sum = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    float x = 0;
    std::int32_t y = 0;
    train.read({&i, 1}, kNoEpoch, std::as_writable_bytes(std::span(&x, 1)), std::as_writable_bytes(std::span(&y, 1)));
    sum += x;
  }
  EXPECT_DOUBLE_EQ(train.info().table->columns[0].fill, sum / 4) << "for cells that are missing in another table";
}

TEST_F(SplitTest, BothPartsHaveTheClassesOfTheWhole) {
  // Only sample 4 is of class 4, so only one part has it.
  const OpenSource open = [] {
    MemorySource::Options options = numbered(50);
    options.label = [](std::int64_t sample) { return sample == 4 ? 4.0 : static_cast<double>(sample % 2); };
    return std::make_unique<MemorySource>(options);
  };
  write_split(open, {.validation = 20}, {.folder = folder_.path() / "set"}, {});
  for (const char* part : {"train", "validation"}) {
    EXPECT_EQ(ShardedDataset({.path = folder_.path() / "set" / part}).info().classes, 5) << part;
  }
}

TEST_F(SplitTest, OfACorpusTheEndValidates) {
  const OpenSource open = [] { return std::make_unique<MemoryCorpus>(MemoryCorpus::Options{.tokens = 1000}); };
  write_split(open, {.validation = 100}, {.folder = folder_.path() / "set"}, {});
  const TokenDataset train({.path = folder_.path() / "set/train", .context = 10});
  const TokenDataset validation({.path = folder_.path() / "set/validation", .context = 10});
  EXPECT_EQ(train.info().tokens->tokens, 900);
  EXPECT_EQ(validation.info().tokens->tokens, 100);
  EXPECT_EQ(train.info().tokens->bytes_per_token, 3);
  EXPECT_EQ(validation.info().tokens->bytes_per_token, 3);
  std::vector<std::int32_t> x(10), y(10);
  const std::int64_t first = 0;
  validation.read({&first, 1}, kNoEpoch, std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
  EXPECT_EQ(x[0], expected_token(900, 50));
  EXPECT_EQ(y[9], expected_token(910, 50));
}

TEST_F(SplitTest, PartsMustNotBeEmpty) {
  EXPECT_THAT(error_text<FileError>([&] { split(10, {.validation = 0}, "a"); }), HasSubstr("0 of 10"));
  EXPECT_THAT(error_text<FileError>([&] { split(10, {.validation = 10}, "a"); }), HasSubstr("10 of 10"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "a"));
}

TEST_F(SplitTest, BothOrNone) {
  // The second part fails: the first one is removed, too.
  const OpenSource open = [] {
    MemorySource::Options options = numbered(100);
    options.value = [](std::int64_t sample, std::int64_t) { return sample == 99 ? std::nan("") : 1.0; };
    return std::make_unique<MemorySource>(options);
  };
  EXPECT_THROW(write_split(open, {.validation = 50}, {.folder = folder_.path() / "set"}, {}), FileError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SplitTest, ReplacesWhatIsItsOwnAndNothingElse) {
  split(100, {.validation = 10}, "set");
  EXPECT_THAT(error_text<FileError>([&] { split(100, {.validation = 20}, "set"); }), HasSubstr("--force"));
  EXPECT_EQ(split(100, {.validation = 20}, "set", true).validation.samples, 20);
  EXPECT_EQ(samples_in(folder_.path() / "set/validation").size(), 20U);
  MemorySource whole(numbered(30));
  write_shards(whole, {.folder = folder_.path() / "set", .overwrite = true}, {});
  EXPECT_EQ(samples_in(folder_.path() / "set").size(), 30U);
  split(100, {.validation = 20}, "set", true);

  write_text(folder_.path() / "set/thesis.txt", "mine");
  EXPECT_THAT(error_text<FileError>([&] { split(100, {.validation = 20}, "set", true); }),
              AllOf(HasSubstr("set"), HasSubstr("does not")));
  std::filesystem::remove(folder_.path() / "set/thesis.txt");
  write_text(folder_.path() / "set/train/thesis.txt", "mine");
  EXPECT_THROW(split(100, {.validation = 20}, "set", true), FileError);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "set/train/thesis.txt"));
}

TEST_F(SplitTest, ProgressIsOfTheWhole) {
  std::vector<std::int64_t> done;
  const OpenSource open = [] { return std::make_unique<MemorySource>(numbered(100)); };
  write_split(open, {.validation = 30}, {.folder = folder_.path() / "set"}, [&](std::int64_t at, std::int64_t all) {
    EXPECT_EQ(all, 100);
    done.push_back(at);
  });
  EXPECT_EQ(done.front(), 0);
  EXPECT_EQ(*std::max_element(done.begin(), done.end()), 100);
}

}  // namespace
}  // namespace lockstep::io
