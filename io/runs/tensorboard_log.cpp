// Format of the file, by the definitions in TensorFlow's public .proto files:
//
//   record   uint64 length, uint32 masked_crc(length), bytes[length], uint32 masked_crc(bytes); little-endian
//   Event    wall_time double = 1, step int64 = 2, file_version string = 3, summary Summary = 5,
//            session_log SessionLog = 7 (status = 1: START is 1)
//   Summary  repeated Value = 1; Value: tag string = 1, simple_value float = 2, histo HistogramProto = 5
//   HistogramProto  min, max, num, sum, sum_squares double = 1..5, bucket_limit, bucket packed double = 6, 7
//
// masked_crc(x) = rotate_right(crc32c(x), 15) + 0xa282ead8. The mask avoids CRCs of data that contain CRCs.
#include "io/runs/tensorboard_log.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/crc.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

std::uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;  // CRC-32C (Castagnoli)
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xa282ead8U;
}

template <class Number>
void append_fixed(std::string& out, Number value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(value);
  out.append(bytes.data(), bytes.size());
}

/// A Value without its content.
ProtobufMessage value_of(std::string_view tag) {
  ProtobufMessage value;
  value.text(1, tag);
  return value;
}

/// Upper limits of TensorBoard's default buckets: 0, 1e-12 * 1.1^k below 1e20, the largest double, and their negatives.
std::vector<double> default_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits(positive.rbegin(), positive.rend());
  for (double& limit : limits) limit = -limit;
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

ProtobufMessage histogram_of(std::span<const float> values) {
  const std::vector<double> limits = default_limits();
  std::vector<double> counts(limits.size(), 0);
  double least = std::numeric_limits<double>::max(), most = std::numeric_limits<double>::lowest();
  double count = 0, sum = 0, squares = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const double x = value;
    // Bucket b holds [limit[b - 1], limit[b]).
    ++counts[static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(), x) - limits.begin())];
    least = std::min(least, x);
    most = std::max(most, x);
    ++count;
    sum += x;
    squares += x * x;
  }
  // A run of empty buckets is written as its last one.
  std::vector<double> used_limits, used_counts;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (counts[i] == 0 && i + 1 < limits.size() && counts[i + 1] == 0) continue;
    used_limits.push_back(limits[i]);
    used_counts.push_back(counts[i]);
  }
  ProtobufMessage histogram;
  histogram.real64(1, count > 0 ? least : 0);
  histogram.real64(2, count > 0 ? most : 0);
  histogram.real64(3, count);
  histogram.real64(4, sum);
  histogram.real64(5, squares);
  histogram.packed(6, used_limits);
  histogram.packed(7, used_counts);
  return histogram;
}

/// An Event without its content.
ProtobufMessage event_at(std::int64_t step) {
  ProtobufMessage event;
  event.real64(1, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  if (step != 0) event.integer(2, step);
  return event;
}

std::int64_t seconds_for(const std::filesystem::path& folder) {
  std::int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kEventFilePrefix)) continue;
    std::int64_t earlier = 0;
    const auto parsed = std::from_chars(name.data() + kEventFilePrefix.size(), name.data() + name.size(), earlier);
    if (parsed.ec == std::errc() && earlier < std::numeric_limits<std::int64_t>::max()) {
      seconds = std::max(seconds, earlier + 1);
    }
  }
  return seconds;
}

}  // namespace

TensorboardLog::TensorboardLog(const std::filesystem::path& folder, std::int64_t resume_step, IoDeadline* deadline)
    : deadline_(deadline) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  path_ = folder / fmt::format("{}{:010}.{}.{}", kEventFilePrefix, seconds_for(folder), host[0] ? host.data() : "host",
                               ::getpid());
  {
    const IoDeadline::Operation opening(deadline_, IoDeadline::Kind::writing, path_);
    descriptor_ = open_own_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, "create");
  }
  ProtobufMessage version = event_at(0);
  version.text(3, "brain.Event:2");
  append(version);
  if (resume_step >= 0) {
    ProtobufMessage start, restart = event_at(resume_step + 1);
    start.integer(1, 1);
    restart.message(7, std::move(start));
    append(restart);
  }
  flush();
}

TensorboardLog::~TensorboardLog() {
  if (has_failed_) return;  // the previous flush has reported the failure
  try {
    flush();
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    std::fputc('\n', stderr);
  }
}

void TensorboardLog::scalar(std::string_view tag, std::int64_t step, double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool too_large = std::isfinite(value) && std::abs(value) > kLargest;
  const float stored = too_large ? (value > 0 ? kInfinity : -kInfinity) : static_cast<float>(value);
  ProtobufMessage its = value_of(tag);
  its.real32(2, stored);
  summary(step, std::move(its));
}

void TensorboardLog::histogram(std::string_view tag, std::int64_t step, std::span<const float> values) {
  ProtobufMessage its = value_of(tag);
  its.message(5, histogram_of(values));
  summary(step, std::move(its));
}

void TensorboardLog::summary(std::int64_t step, ProtobufMessage value) {
  ProtobufMessage summary, event = event_at(step);
  summary.message(1, std::move(value));
  event.message(5, std::move(summary));
  append(event);
}

void TensorboardLog::append(const ProtobufMessage& event) {
  std::string length, content;
  append_fixed(length, event.bytes());
  event.write([&](std::span<const std::byte> bytes) {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  pending_ += length;
  append_fixed(pending_, masked_crc(length));
  pending_ += content;
  append_fixed(pending_, masked_crc(content));
}

void TensorboardLog::flush() {
  if (pending_.empty()) return;
  const IoDeadline::Operation writing(deadline_, IoDeadline::Kind::writing, path_);
  has_failed_ = true;  // reset by a successful flush
  append_whole(descriptor_, pending_, path_);
  has_failed_ = false;
  pending_.clear();
}

}  // namespace lockstep::io
