// Format of the file, by the definitions in TensorFlow's public .proto files:
//
//   record   uint64 length, uint32 masked_crc(length), bytes[length], uint32 masked_crc(bytes); little-endian
//   Event    wall_time double = 1, step int64 = 2, file_version string = 3, summary Summary = 5,
//            session_log SessionLog = 7 (status = 1: START is 1)
//   Summary  repeated Value = 1; Value: tag string = 1, simple_value float = 2, histo HistogramProto = 5
//   HistogramProto  min, max, num, sum, sum_squares double = 1..5, bucket_limit, bucket packed double = 6, 7
//
// masked_crc(x) = rotate_right(crc32c(x), 15) + 0xa282ead8, so that a CRC of data which holds CRCs stays a good one.
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
#include <vector>

#include <boost/crc.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

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

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& out, unsigned field, Wire wire) {
  append_varint(out, field << 3 | static_cast<unsigned>(wire));
}
void append_double(std::string& out, unsigned field, double value) {
  append_key(out, field, Wire::fixed64);
  append_fixed(out, value);
}
void append_integer(std::string& out, unsigned field, std::int64_t value) {
  append_key(out, field, Wire::varint);
  append_varint(out, static_cast<std::uint64_t>(value));
}
void append_bytes(std::string& out, unsigned field, std::string_view value) {
  append_key(out, field, Wire::bytes);
  append_varint(out, value.size());
  out.append(value);
}
void append_packed(std::string& out, unsigned field, std::span<const double> values) {
  append_key(out, field, Wire::bytes);
  append_varint(out, values.size_bytes());
  for (const double value : values) append_fixed(out, value);
}

/// Field 5 of an Event: a Summary of one Value.
std::string summary_of(std::string_view tag, std::string_view value_field) {
  std::string value, summary, field;
  append_bytes(value, 1, tag);
  value.append(value_field);
  append_bytes(summary, 1, value);
  append_bytes(field, 5, summary);
  return field;
}

/// Upper limits of TensorBoard's default buckets: 0, 1e-12 * 1.1^k below 1e20 and the largest double, mirrored.
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

std::string histogram_field(std::span<const float> values) {
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
  std::string histogram, field;
  append_double(histogram, 1, count > 0 ? least : 0);
  append_double(histogram, 2, count > 0 ? most : 0);
  append_double(histogram, 3, count);
  append_double(histogram, 4, sum);
  append_double(histogram, 5, squares);
  append_packed(histogram, 6, used_limits);
  append_packed(histogram, 7, used_counts);
  append_bytes(field, 5, histogram);
  return field;
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
  std::string version;
  append_bytes(version, 3, "brain.Event:2");
  event(0, version);
  if (resume_step >= 0) {
    std::string start, session;
    append_integer(start, 1, 1);
    append_bytes(session, 7, start);
    event(resume_step + 1, session);
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
  std::string field;
  append_key(field, 2, Wire::fixed32);
  append_fixed(field, stored);
  event(step, summary_of(tag, field));
}

void TensorboardLog::histogram(std::string_view tag, std::int64_t step, std::span<const float> values) {
  event(step, summary_of(tag, histogram_field(values)));
}

void TensorboardLog::event(std::int64_t step, std::string_view fields) {
  std::string content;
  append_double(content, 1, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  if (step != 0) append_integer(content, 2, step);
  content.append(fields);

  std::string length;
  append_fixed(length, static_cast<std::uint64_t>(content.size()));
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
