/// \file
/// Reads files as bytes, from front to back, as fast as the system delivers them. This is the baseline for other ways
/// of reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "io/files/durable_file.hpp"

namespace lockstep::io {

class RawReader {
 public:
  /// Opens all files. Throws FileError.
  explicit RawReader(const std::vector<std::filesystem::path>& files);

  /// Size of all files together.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Reads bytes [first, first + count) of the concatenated files, starting again at the front if necessary, one
  /// mebibyte at a time into the same memory. Throws FileError, also if a file has become shorter.
  void read(std::uint64_t first, std::uint64_t count);
  /// Asks the system to drop the files from its page cache (posix_fadvise). The system may ignore this, and cannot drop
  /// pages that are not yet written.
  void forget() const noexcept;
  /// Approximate share of the files in the page cache (from 512 bytes spread over them); nullopt if the file system
  /// does not support the query. Reads nothing from disk.
  std::optional<double> cached_share() const;

 private:
  struct File {
    std::filesystem::path path;
    Descriptor descriptor;
    std::uint64_t first = 0, bytes = 0;
  };
  /// The file that holds this byte.
  const File& file_at(std::uint64_t position) const;

  std::vector<File> files_;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep::io
