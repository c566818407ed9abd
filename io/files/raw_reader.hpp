/// \file
/// Files read as bytes, from front to back, as fast as the system gives them: what every other way of reading them is
/// measured against.
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

  /// Of all files together.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Reads bytes [first, first + count) of the files laid end to end, and then from the front again, a mebibyte at a
  /// time into the same memory. Throws FileError, also where a file has become shorter.
  void read(std::uint64_t first, std::uint64_t count);
  /// Asks the system to forget what it holds of the files in memory (posix_fadvise): it need not, and cannot forget
  /// what has not been written yet.
  void forget() const noexcept;
  /// About which share of the files is in memory (of 512 bytes spread over them); nullopt where the file system does
  /// not tell. Reads nothing from disk.
  std::optional<double> cached_share() const;

 private:
  struct File {
    std::filesystem::path path;
    Descriptor descriptor;
    std::uint64_t first = 0, bytes = 0;
  };
  /// The one that holds this byte.
  const File& file_at(std::uint64_t position) const;

  std::vector<File> files_;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep::io
