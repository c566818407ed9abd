/// \file
/// A file for other programs, written once from front to back. It appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/files/durable_file.hpp"

namespace lockstep::io {

/// Treatment of an existing file.
enum class IfThere { refuse, replace };

/// Throws FileError if `file` is a folder, or exists and must not be replaced. Commands check this before they begin.
void require_writable_name(const std::filesystem::path& file, IfThere if_there);

/// Writes to a temporary beside the file. finish() flushes it to the device and renames it; without finish() the
/// destructor removes it.
class OutputFile {
 public:
  /// Reserves `bytes` of space first, so that a full disk shows before the first byte. Throws FileError.
  OutputFile(std::filesystem::path file, IfThere if_there, std::uint64_t bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// These throw FileError; its message for a full disk states the space.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  std::uint64_t written() const noexcept { return written_ + buffer_.size(); }
  void finish();

 private:
  void flush();
  void put(std::string_view bytes);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path file_, temporary_;
  IfThere if_there_;
  std::uint64_t bytes_, written_ = 0;
  Descriptor descriptor_;
  std::string buffer_;  ///< buffer for small writes
};

}  // namespace lockstep::io
