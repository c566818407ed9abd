#include "io/runs/metrics_log.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/small_disk.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

MetricRecord at_step(std::int64_t step) { return {{"step", step}, {"loss", 1.0 / static_cast<double>(step + 1)}}; }

std::string lines_up_to(std::int64_t last) {
  std::string text;
  for (std::int64_t step = 1; step <= last; ++step) text += to_json_line(at_step(step)) + "\n";
  return text;
}

void write_up_to(const fs::path& file, std::int64_t last) {
  MetricsLog log(file, false);
  for (std::int64_t step = 1; step <= last; ++step) log.write(at_step(step));
}

TEST(MetricsLog, RecordsBecomeJsonInTheirOrder) {
  EXPECT_EQ(to_json_line({{"step", std::int64_t{12}}, {"loss", 0.25}, {"a", std::string("b")}}),
            R"({"step":12,"loss":0.25,"a":"b"})");
  EXPECT_EQ(to_json_line({}), "{}");
  EXPECT_EQ(to_json_line({{"a", std::numeric_limits<double>::quiet_NaN()},
                          {"b", std::numeric_limits<double>::infinity()},
                          {"c", -std::numeric_limits<double>::infinity()}}),
            R"({"a":null,"b":null,"c":null})");
  EXPECT_EQ(to_json_line({{"text", std::string("line\n\"quoted\"\x01")}}), R"({"text":"line\n\"quoted\"\u0001"})");
  EXPECT_EQ(to_json_line({{"text", std::string("bad \xff utf-8")}}), R"({"text":"bad \\xFF utf-8"})")
      << "bytes stay told apart";
  EXPECT_EQ(to_json_line({{"n", std::numeric_limits<std::int64_t>::min()}}), R"({"n":-9223372036854775808})");
  EXPECT_THROW(to_json_line({{"a", 1.0}, {"a", 2.0}}), std::invalid_argument);
}

TEST(MetricsLog, TellsWhichStepsItHasRecordsOf) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  EXPECT_THAT(recorded_steps(file, "checkpoint"), testing::IsEmpty());
  write_text(file,
             "{\"kind\":\"checkpoint\",\"step\":10}\n{\"kind\":\"train\",\"step\":11}\n[1]\nnonsense\n"
             "{\"kind\":\"checkpoint\"}\n{\"kind\":\"checkpoint\",\"step\":20}\n{\"kind\":\"checkpoint\",\"step\":30}");
  EXPECT_THAT(recorded_steps(file, "checkpoint"), testing::ElementsAre(10, 20)) << "the last line is torn";
}

TEST(MetricsLog, NumbersSurviveTheRoundTrip) {
  for (const double value : {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 123456789.123456789}) {
    const std::string line = to_json_line({{"v", value}});
    const double back = std::strtod(line.c_str() + 5, nullptr);
    EXPECT_EQ(back, value) << line;
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << line;
  }
}

TEST(MetricsLog, EachRecordIsOneLineAtOnce) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  write_text(file, "old");
  MetricsLog log(file, false);
  EXPECT_EQ(read_text(file), "") << "a fresh log is empty";
  for (std::int64_t step = 1; step <= 3; ++step) {
    log.write(at_step(step));
    EXPECT_EQ(read_text(file), lines_up_to(step));
  }
}

TEST(MetricsLog, ResumeCutsWhatWillBeProducedAgain) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  for (const std::int64_t resume : {0, 1, 4, 9, 10, 11}) {
    write_up_to(file, 10);
    MetricsLog log(file, true, resume);
    EXPECT_EQ(read_text(file), lines_up_to(std::min<std::int64_t>(resume, 10))) << resume;
    log.write({{"resumed", resume}});
    EXPECT_THAT(read_text(file), ::testing::EndsWith("{\"resumed\":" + std::to_string(resume) + "}\n"));
  }
  write_up_to(file, 10);
  { const MetricsLog log(file, true); }
  EXPECT_EQ(read_text(file), lines_up_to(10)) << "no step given: nothing is cut";
}

TEST(MetricsLog, ResumeKeepsRecordsWithoutAStepAndDropsTornLines) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  const std::string other = "{\"event\":\"start\"}\n{\"step\":\"text\"}\n{\"step\":2.0}\n";
  for (const std::string torn : {"", "{\"step\": 3, \"lo", "{", "\xff\xfe", "[1,2]\n", "{\"step\":3}{\n", "\n"}) {
    write_text(file, other + torn);
    { const MetricsLog log(file, true, 5); }
    EXPECT_EQ(read_text(file), other) << torn;
  }
  write_text(file,
             "{\"step\":3}");  // whole but for its newline: written again only if it is beyond the step
  { const MetricsLog log(file, true, 2); }
  EXPECT_EQ(read_text(file), "");
}

TEST(MetricsLog, AppendsWhereThereIsNothing) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, true, 7);
  log.write(at_step(1));
  EXPECT_EQ(read_text(file), lines_up_to(1));
}

TEST(MetricsLog, NamesTheFileThatCannotBeOpened) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text<FileError>([&] { MetricsLog(folder.path() / "no" / "metrics.jsonl", false); }),
              AllOf(HasSubstr("no/metrics.jsonl"), HasSubstr("No such file or directory")));
  EXPECT_THAT(error_text<FileError>([&] { MetricsLog(folder.path(), true); }), HasSubstr(folder.path().string()));
}

TEST(MetricsLog, WritesNoHalfLineAtTheFileSizeLimit) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, false);
  log.write(at_step(1));
  {
    const FileSizeLimit limit(fs::file_size(file) + 5);
    EXPECT_THAT(error_text<FileError>([&] { log.write(at_step(2)); }),
                AllOf(HasSubstr("metrics.jsonl"), HasSubstr("File too large")));
    EXPECT_EQ(read_text(file), lines_up_to(1));
  }
  log.write(at_step(2));
  EXPECT_EQ(read_text(file), lines_up_to(2));
}

TEST(MetricsLog, FullDiskSaysSoAndTheFileStaysWhole) {
  const SmallDisk disk("1M");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  const fs::path file = disk.path() / "metrics.jsonl";
  MetricsLog log(file, false);
  disk.fill(8192);
  std::string error;
  for (std::int64_t step = 1; step < 2000 && error.empty(); ++step) {
    try {
      log.write(at_step(step));
    } catch (const FileError& full) {
      error = full.what();
    }
  }
  EXPECT_THAT(error, AllOf(HasSubstr("metrics.jsonl"), HasSubstr("No space left on device"), HasSubstr("0 B free")));
  const std::string text = read_text(file);
  EXPECT_GT(text.size(), 4000u);
  EXPECT_EQ(text.back(), '\n');
  fs::remove(disk.path() / "filler");
  log.write({{"again", std::int64_t{1}}});
  EXPECT_EQ(read_text(file), text + "{\"again\":1}\n");
}

TEST(MetricsLog, LastRecordsAreOfEachKindAndPassOverTornLines) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  EXPECT_EQ(last_records(file).kind, "");
  {
    MetricsLog log(file, false);
    log.write({{"kind", std::string("train")}, {"step", std::int64_t{1}}, {"loss", 0.5}});
    log.write({{"kind", std::string("train")}, {"step", std::int64_t{2}}, {"loss", std::nan("")}});
    log.write({{"kind", std::string("end")}, {"step", std::int64_t{2}}});
  }
  std::ofstream(file, std::ios::app) << "{\"kind\":\"train\",\"st\n[1]\n{\"kind\":\"torn";
  const LastRecords last = last_records(file);
  EXPECT_EQ(last.kind, "end");
  ASSERT_EQ(last.of_kind.count("train"), 1U);
  const MetricRecord& train = last.of_kind.at("train");
  ASSERT_EQ(train.size(), 3U);
  EXPECT_EQ(std::get<std::int64_t>(train[1].second), 2);
  EXPECT_TRUE(std::isnan(std::get<double>(train[2].second)));
}

}  // namespace
}  // namespace lockstep::io
