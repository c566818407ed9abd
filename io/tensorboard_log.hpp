/// \file
/// TensorBoard event files: TFRecord framing (length, masked CRC-32C) around Event protocol buffers, written by hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/file_error.hpp"

namespace lockstep::io {

class TensorboardLog {
 public:
  /// Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID and writes the version event.
  explicit TensorboardLog(const std::filesystem::path& folder);
  ~TensorboardLog();
  TensorboardLog(const TensorboardLog&) = delete;
  TensorboardLog& operator=(const TensorboardLog&) = delete;

  void scalar(std::string_view tag, std::int64_t step, double value);
  /// HistogramProto with TensorBoard's default exponential bucket limits.
  void histogram(std::string_view tag, std::int64_t step, std::span<const float> values);
  void flush();   ///< throws FileError (disk full …)

 private:
  void event(std::int64_t step, std::string_view summary);
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string pending_;
};

}  // namespace lockstep::io
