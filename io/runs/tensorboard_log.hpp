/// \file
/// TensorBoard event files: TFRecord framing (length, masked CRC-32C) around Event protocol buffers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "io/files/io_deadline.hpp"
#include "io/files/protobuf_message.hpp"

namespace lockstep::io {

/// Collects events in memory. flush() appends all of them or, if it fails, none.
class TensorboardLog {
 public:
  /// Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID and writes the version event. SECONDS is the present time, or
  /// at least one more than the SECONDS of the newest event file there, because TensorBoard reads files in the order of
  /// their names. With resume_step >= 0 a restart event follows, which makes TensorBoard drop later steps of earlier
  /// files. `deadline` applies to each write, and outlives the log.
  explicit TensorboardLog(const std::filesystem::path& folder, std::int64_t resume_step = -1,
                          IoDeadline* deadline = nullptr);
  /// Flushes; reports a failure on standard error.
  ~TensorboardLog();
  TensorboardLog(const TensorboardLog&) = delete;
  TensorboardLog& operator=(const TensorboardLog&) = delete;

  /// Stored as float32 (beyond its range: infinity); NaN and infinities are stored as such.
  void scalar(std::string_view tag, std::int64_t step, double value);
  /// HistogramProto with TensorBoard's default exponential bucket limits (about 11 comparisons per value). NaN and
  /// infinite values are left out of everything, including the count.
  void histogram(std::string_view tag, std::int64_t step, std::span<const float> values);
  void flush();  ///< throws FileError (disk full …)

 private:
  void summary(std::int64_t step, ProtobufMessage value);
  void append(const ProtobufMessage& event);

  std::filesystem::path path_;
  IoDeadline* deadline_;
  Descriptor descriptor_;
  bool has_failed_ = false;  ///< the last flush failed
  std::string pending_;
};

}  // namespace lockstep::io
