#include "io/runs/prediction_file.hpp"

#include <fstream>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/hdf5_file.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using Existing = PredictionOutput::Existing;

PredictionContent three_of_two(const std::string& checkpoint = "a") {
  return {.samples = 3,
          .outputs = 2,
          .classes = true,
          .targets = true,
          .class_names = {"cat", "a, \"b\""},
          .about = {{"checkpoint", checkpoint}}};
}
const std::vector<float> kScores{0.25f, 0.75f, 0.5f, 0.5f, 1, 0};
const std::vector<std::int32_t> kTargets{1, 1, 0};

void write_rows(PredictionWriter& writer, std::size_t first, std::size_t count) {
  writer.write(std::span(kScores).subspan(2 * first, 2 * count),
               std::as_bytes(std::span(kTargets).subspan(first, count)));
}
template <class Value>
std::vector<Value> read(const fs::path& file, const char* dataset, FileType type, std::size_t count) {
  std::vector<Value> values(count);
  Hdf5File(file, Hdf5File::Access::read).read(dataset, type, std::as_writable_bytes(std::span(values)));
  return values;
}
std::string bytes_of(const fs::path& file) { return read_whole(file).value(); }

TEST(PredictionFile, OfAPartItHasTheRowsInTheWhole) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5", csv = folder.path() / "p.csv";
  PredictionContent content = three_of_two();
  content.row_of = [](std::int64_t sample) { return 5 * sample + 2; };
  PredictionWriter writer({.file = file, .csv = csv}, content);
  write_rows(writer, 0, 3);
  writer.finish();
  EXPECT_THAT(read<std::int64_t>(file, "/index", FileType::int64, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(read<std::int64_t>(file, "/row", FileType::int64, 3), ElementsAre(2, 7, 12));
  EXPECT_THAT(bytes_of(csv), testing::StartsWith("index,row,target,class,"));
  EXPECT_THAT(bytes_of(csv), testing::HasSubstr("\n1,7,"));
}

TEST(PredictionFile, HoldsWhatWasWrittenAndTheFirstOfTheLikeliestClasses) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5";
  PredictionWriter writer({.file = file}, three_of_two());
  write_rows(writer, 0, 2);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_THROW(writer.finish(), std::logic_error) << "one sample is missing";
  write_rows(writer, 2, 1);
  writer.finish();
  EXPECT_EQ(read<float>(file, "/scores", FileType::float32, 6), kScores);
  EXPECT_THAT(read<std::int32_t>(file, "/class", FileType::int32, 3), ElementsAre(1, 0, 0));
  EXPECT_EQ(read<std::int32_t>(file, "/target", FileType::int32, 3), kTargets);
  EXPECT_THAT(read<std::int64_t>(file, "/index", FileType::int64, 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(Hdf5File(file, Hdf5File::Access::read).text("/", "checkpoint"), "a");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing else is left";
}

TEST(PredictionFile, AsTextItHasALineForEachSample) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5", csv = folder.path() / "p.csv";
  PredictionWriter writer({.file = file, .csv = csv}, three_of_two());
  write_rows(writer, 0, 3);
  writer.finish();
  EXPECT_EQ(bytes_of(csv),
            "index,target,class,score_cat,\"score_a, \"\"b\"\"\"\n"
            "0,\"a, \"\"b\"\"\",\"a, \"\"b\"\"\",0.25,0.75\n1,\"a, \"\"b\"\"\",cat,0.5,0.5\n2,cat,cat,1,0\n");
}

TEST(PredictionFile, ASecondWriterOfTheSameFileIsRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5";
  PredictionWriter writer({.file = file}, three_of_two());
  EXPECT_THROW(PredictionWriter({.file = file, .existing = Existing::replace}, three_of_two()), FileError);
  write_rows(writer, 0, 3);
  writer.finish();
  EXPECT_THROW(PredictionWriter({.file = file}, three_of_two()), FileError) << "it is there";
  PredictionWriter({.file = file, .existing = Existing::replace}, three_of_two());
}

TEST(PredictionFile, ALeftPartIsTakenOverOnlyWhereTheContentIsTheSame) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5", progress = folder.path() / "p.h5.partial.progress";
  PredictionContent content = three_of_two();
  {
    PredictionWriter whole({.file = folder.path() / "whole.h5"}, content);
    write_rows(whole, 0, 3);
    whole.finish();
    PredictionWriter left({.file = file}, content);
    write_rows(left, 0, 1);
    left.note_progress();
  }
  const std::string noted = bytes_of(progress);
  {
    PredictionWriter goes_on({.file = file}, content);
    EXPECT_EQ(goes_on.done(), 1);
    write_rows(goes_on, 1, 2);
    goes_on.finish();
  }
  EXPECT_EQ(bytes_of(file), bytes_of(folder.path() / "whole.h5"));
  fs::remove(file);
  for (const std::string& damaged :
       {noted.substr(0, 10), noted.substr(0, noted.find('\n') + 1) + "4\n",
        noted.substr(0, noted.find('\n') + 1) + "-1\n", std::string("\n1\n"), std::string()}) {
    std::ofstream(progress) << damaged;
    EXPECT_EQ(PredictionWriter({.file = file}, content).done(), 0) << damaged;
  }
  std::ofstream(progress) << noted;
  EXPECT_EQ(PredictionWriter({.file = file}, three_of_two("another")).done(), 0);
}

TEST(PredictionFile, APartThatIsOverwrittenIsForgottenBeforeItIs) {
  const TemporaryFolder folder;
  const PredictionOutput output{.file = folder.path() / "p.h5"};
  {
    PredictionWriter first(output, three_of_two("a"));
    write_rows(first, 0, 2);
    first.note_progress();
  }
  { const PredictionWriter killed_at_once(output, three_of_two("b")); }
  const PredictionWriter again(output, three_of_two("a"));
  EXPECT_EQ(again.done(), 0) << "its two samples are gone";
}

TEST(PredictionFile, ADamagedPartIsStartedOverAndSaidSo) {
  const TemporaryFolder folder;
  const PredictionOutput output{.file = folder.path() / "p.h5"};
  const fs::path partial = folder.path() / "p.h5.partial";
  for (const std::uintmax_t size : {0, 100, 2000}) {
    {
      PredictionWriter left(output, three_of_two());
      EXPECT_EQ(left.refused(), "");
      write_rows(left, 0, 1);
      left.note_progress();
    }
    fs::resize_file(partial, size);
    const PredictionWriter next(output, three_of_two());
    EXPECT_EQ(next.done(), 0) << size;
    EXPECT_THAT(next.refused(), ::testing::HasSubstr("p.h5.partial, which an earlier job has left, is damaged"))
        << size;
  }
}

TEST(PredictionFile, ATextThatIsThereIsRefusedBeforeAnythingIsComputed) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5", csv = folder.path() / "p.csv";
  std::ofstream(csv) << "mine\n";
  EXPECT_THROW(PredictionWriter({.file = file, .csv = csv}, three_of_two()), FileError);
  EXPECT_EQ(bytes_of(csv), "mine\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing else is left";
  PredictionWriter writer({.file = file, .csv = csv, .existing = Existing::replace}, three_of_two());
  write_rows(writer, 0, 3);
  writer.finish();
  EXPECT_NE(bytes_of(csv), "mine\n");
}

TEST(PredictionFile, WhereTheTextCannotBeWrittenTheNextProcessWritesIt) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "p.h5", missing = folder.path() / "missing";
  const PredictionOutput output{.file = file, .csv = missing / "p.csv"};
  {
    PredictionWriter writer(output, three_of_two());
    write_rows(writer, 0, 3);
    EXPECT_THROW(writer.finish(), FileError);
    EXPECT_FALSE(fs::exists(file));
  }
  fs::create_directory(missing);
  PredictionWriter next(output, three_of_two());
  EXPECT_EQ(next.done(), 3);
  next.finish();
  EXPECT_TRUE(fs::exists(file) && fs::exists(output.csv));
}

TEST(PredictionFile, WrongSizesAreTheCallersMistake) {
  const TemporaryFolder folder;
  PredictionWriter writer({.file = folder.path() / "p.h5"}, three_of_two());
  const std::span<const float> scores(kScores);
  const auto targets = std::as_bytes(std::span(kTargets));
  EXPECT_THROW(writer.write(scores.first(3), targets.first(4)), std::invalid_argument);
  EXPECT_THROW(writer.write(scores.first(2), targets.first(8)), std::invalid_argument);
  writer.write(scores, targets);
  EXPECT_THROW(writer.write(scores.first(2), targets.first(4)), std::invalid_argument) << "there are three";
}

}  // namespace
}  // namespace lockstep::io
