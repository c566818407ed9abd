// Decodes the files with a reader that shares no code with the writer: a bitwise CRC and a generic protobuf parser.
#include "io/runs/tensorboard_log.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/small_disk.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number value{};
  if (at + sizeof value > bytes.size()) throw std::runtime_error("ends early");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Throws std::runtime_error for a wrong CRC or an incomplete record.
std::vector<std::string> records_in(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    if (number_at<std::uint32_t>(file, at + 8) != masked(std::string_view(file).substr(at, 8))) {
      throw std::runtime_error("wrong CRC of a length");
    }
    const std::string content = file.substr(at + 12, length);
    if (number_at<std::uint32_t>(file, at + 12 + length) != masked(content)) throw std::runtime_error("wrong CRC");
    records.push_back(content);
    at += 16 + length;
  }
  return records;
}

/// The values of each field by its number, as raw bytes (a varint as 8 bytes).
using Message = std::multimap<std::uint64_t, std::string>;

Message decode(std::string_view bytes) {
  Message message;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number_at<std::uint8_t>(bytes, at++);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    std::size_t length = 0;
    if ((key & 7) == 0) {
      const std::uint64_t value = varint();
      message.emplace(key >> 3, std::string(reinterpret_cast<const char*>(&value), sizeof value));
      continue;
    }
    if ((key & 7) == 1)
      length = 8;
    else if ((key & 7) == 5)
      length = 4;
    else if ((key & 7) == 2)
      length = varint();
    else
      throw std::runtime_error("unknown wire type");
    if (length > bytes.size() - at) throw std::runtime_error("field ends early");
    message.emplace(key >> 3, std::string(bytes.substr(at, length)));
    at += length;
  }
  return message;
}

std::string field(const Message& message, std::uint64_t number) {
  EXPECT_EQ(message.count(number), 1u) << "field " << number;
  const auto found = message.find(number);
  return found == message.end() ? std::string(8, '\0') : found->second;
}
template <class Number>
Number as(const std::string& bytes) {
  return number_at<Number>(bytes, 0);
}
std::vector<double> packed(const std::string& bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += 8) values.push_back(number_at<double>(bytes, at));
  return values;
}

struct Value {
  std::int64_t step = 0;
  std::string tag;
  std::optional<float> scalar;
  std::optional<Message> histogram;
};

Value value_of(const std::string& record) {
  const Message event = decode(record);
  Value value;
  EXPECT_GT(as<double>(field(event, 1)), 1.7e9) << "wall time";
  if (event.count(2) != 0) value.step = as<std::int64_t>(field(event, 2));
  const Message stored = decode(field(decode(field(event, 5)), 1));
  value.tag = field(stored, 1);
  if (stored.count(2) != 0) value.scalar = as<float>(field(stored, 2));
  if (stored.count(5) != 0) value.histogram = decode(field(stored, 5));
  return value;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> only_records(const fs::path& folder) {
  const std::vector<fs::path> files = event_files(folder);
  EXPECT_EQ(files.size(), 1u);
  return records_in(read_text(files.at(0)));
}

TEST(TensorboardLog, TheReaderKnowsTheCheckValueAndNoticesDamage) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  const TemporaryFolder folder;
  { const TensorboardLog log(folder.path()); }
  std::string file = read_text(event_files(folder.path()).at(0));
  EXPECT_EQ(records_in(file).size(), 1u);
  file[20] = static_cast<char>(file[20] ^ 1);
  EXPECT_THROW(records_in(file), std::runtime_error);
  EXPECT_THROW(records_in(file.substr(0, file.size() - 1)), std::runtime_error);
}

TEST(TensorboardLog, StartsWithTheVersion) {
  const TemporaryFolder folder;
  const TensorboardLog log(folder.path());
  const std::string name = event_files(folder.path()).at(0).filename().string();
  const std::int64_t seconds = std::stoll(name.substr(20));
  EXPECT_NEAR(static_cast<double>(seconds), static_cast<double>(std::time(nullptr)), 5);
  EXPECT_THAT(name, ::testing::EndsWith("." + std::to_string(::getpid())));
  const std::vector<std::string> records = only_records(folder.path());
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(field(decode(records[0]), 3), "brain.Event:2");
}

TEST(TensorboardLog, ScalarsKeepTagStepAndValue) {
  const TemporaryFolder folder;
  TensorboardLog log(folder.path());
  const std::vector<std::pair<double, float>> values = {{0.0, 0.0f},
                                                        {-1.5, -1.5f},
                                                        {0.1, 0.1f},
                                                        {1e300, kInfinity},
                                                        {-1e300, -kInfinity},
                                                        {kInfinity, kInfinity},
                                                        {-kInfinity, -kInfinity}};
  std::int64_t step = 0;
  for (const auto& [given, stored] : values) log.scalar("train/loss", (step++) * 3'000'000'000, given);
  log.scalar(std::string(300, 't'), 1, kNaN);
  EXPECT_EQ(only_records(folder.path()).size(), 1u) << "nothing is written before flush()";
  log.flush();
  const std::vector<std::string> records = only_records(folder.path());
  ASSERT_EQ(records.size(), values.size() + 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value value = value_of(records[i + 1]);
    EXPECT_EQ(value.tag, "train/loss");
    EXPECT_EQ(value.step, static_cast<std::int64_t>(i) * 3'000'000'000);
    EXPECT_EQ(value.scalar, values[i].second);
  }
  EXPECT_EQ(value_of(records.back()).tag.size(), 300u);
  EXPECT_TRUE(std::isnan(value_of(records.back()).scalar.value()));
}

struct Histogram {
  double min, max, num, sum, squares;
  std::vector<double> limits, counts;
};

Histogram histogram_of(std::span<const float> values) {
  const TemporaryFolder folder;
  {
    TensorboardLog log(folder.path());
    log.histogram("w", 5, values);
  }
  const Value value = value_of(only_records(folder.path()).at(1));
  EXPECT_EQ(value.tag, "w");
  EXPECT_EQ(value.step, 5);
  const Message& stored = value.histogram.value();
  return {as<double>(field(stored, 1)), as<double>(field(stored, 2)), as<double>(field(stored, 3)),
          as<double>(field(stored, 4)), as<double>(field(stored, 5)), packed(field(stored, 6)),
          packed(field(stored, 7))};
}

TEST(TensorboardLog, HistogramsCountEveryValueInItsBucket) {
  std::vector<float> values;
  for (int i = -500; i <= 500; ++i) values.push_back(static_cast<float>(i * std::abs(i)) * 1e-4f);
  values.insert(values.end(), {0.0f, 1e-20f, -1e-20f, 3e38f, -3e38f});
  const Histogram histogram = histogram_of(values);
  EXPECT_EQ(histogram.min, -3e38f);
  EXPECT_EQ(histogram.max, 3e38f);
  EXPECT_EQ(histogram.num, static_cast<double>(values.size()));
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  EXPECT_DOUBLE_EQ(histogram.sum, sum);
  EXPECT_DOUBLE_EQ(histogram.squares, squares);
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  double low = -std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < histogram.limits.size(); ++i) {
    const double high = histogram.limits[i];
    EXPECT_TRUE(low < high || i == 0);  // the first limit is the lowest double itself
    double expected = 0;
    for (const double value : values) expected += value >= low && value < high ? 1 : 0;
    EXPECT_EQ(histogram.counts[i], expected) << low << " .. " << high;
    // TensorBoard's limits: 1e-12 * 1.1^k, mirrored, and 0.
    if (std::abs(high) > 0 && std::abs(high) < 1e20) {
      const double k = std::log(std::abs(high) / 1e-12) / std::log(1.1);
      EXPECT_NEAR(k, std::round(k), 1e-6);
    }
    low = high;
  }
}

TEST(TensorboardLog, HistogramsLeaveOutWhatIsNotFinite) {
  const std::vector<float> values = {kNaN, 1.0f, kInfinity, 2.0f, -kInfinity, -kNaN};
  const Histogram histogram = histogram_of(values);
  EXPECT_EQ(histogram.num, 2);
  EXPECT_EQ(histogram.min, 1);
  EXPECT_EQ(histogram.max, 2);
  EXPECT_EQ(histogram.sum, 3);
  EXPECT_EQ(histogram.squares, 5);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0), 2);
}

TEST(TensorboardLog, EmptyHistogramsAreZero) {
  for (const std::vector<float>& values : {std::vector<float>{}, std::vector<float>{kNaN, kInfinity}}) {
    const Histogram histogram = histogram_of(values);
    EXPECT_EQ(histogram.num, 0);
    EXPECT_EQ(histogram.min, 0);
    EXPECT_EQ(histogram.max, 0);
    EXPECT_EQ(histogram.counts, std::vector<double>{0});
    EXPECT_EQ(histogram.limits.size(), 1u);
  }
}

TEST(TensorboardLog, ResumedRunsSortLaterAndSayWhereTheyStart) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<TensorboardLog>> logs;
  for (int run = 0; run < 12; ++run) logs.push_back(std::make_unique<TensorboardLog>(folder.path(), run * 100));
  const std::vector<fs::path> files = event_files(folder.path());
  ASSERT_EQ(files.size(), 12u);
  for (std::size_t run = 0; run < files.size(); ++run) {
    const std::vector<std::string> records = records_in(read_text(files[run]));
    ASSERT_EQ(records.size(), 2u);
    const Message event = decode(records[1]);
    EXPECT_EQ(as<std::int64_t>(field(event, 2)), static_cast<std::int64_t>(run * 100 + 1));
    EXPECT_EQ(as<std::int64_t>(field(decode(field(event, 7)), 1)), 1);
  }
}

TEST(TensorboardLog, FailedFlushLeavesWholeRecordsAndCanBeRepeated) {
  const TemporaryFolder folder;
  TensorboardLog log(folder.path());
  log.scalar("a", 1, 1);
  log.flush();
  const std::uintmax_t size = fs::file_size(event_files(folder.path()).at(0));
  log.scalar("a", 2, 2);
  {
    const FileSizeLimit limit(size + 7);
    EXPECT_THAT(error_text<FileError>([&] { log.flush(); }),
                AllOf(HasSubstr("events.out.tfevents."), HasSubstr("File too large")));
    EXPECT_EQ(only_records(folder.path()).size(), 2u);
  }
  log.flush();
  EXPECT_EQ(only_records(folder.path()).size(), 3u);
}

TEST(TensorboardLog, AFailureIsToldOnce) {
  const TemporaryFolder folder;
  for (const bool flushed : {true, false}) {
    testing::internal::CaptureStderr();
    {
      const FileSizeLimit limit(80);  // enough for the version event and some words
      TensorboardLog log(folder.path());
      for (int step = 0; step < 50; ++step) log.scalar("train/loss", step, 1);
      if (flushed) {
        EXPECT_THROW(log.flush(), FileError);
      }
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.empty(), flushed) << "the destructor speaks where nobody else could: " << said;
  }
}

TEST(TensorboardLog, FullDiskSaysSo) {
  const SmallDisk disk("1M");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  TensorboardLog log(disk.path());
  disk.fill(0);
  for (int step = 0; step < 500; ++step) log.scalar("train/loss", step, step);
  EXPECT_THAT(error_text<FileError>([&] { log.flush(); }),
              AllOf(HasSubstr("events.out.tfevents."), HasSubstr("No space left on device"), HasSubstr("needed")));
  fs::remove(disk.path() / "filler");
  log.flush();
  EXPECT_EQ(only_records(disk.path()).size(), 501u);
  EXPECT_THROW(TensorboardLog(disk.path() / "none"), FileError);
}

}  // namespace
}  // namespace lockstep::io
