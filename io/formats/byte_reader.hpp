/// \file
/// A file read forward in exact pieces, plain or gzip (recognised by content).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "io/files/file_error.hpp"

namespace lockstep::io {

class ByteReader {
 public:
  /// Throws FileError when the file is missing, unreadable, or named .gz without being gzip.
  explicit ByteReader(std::filesystem::path path);
  ~ByteReader();
  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Of the next byte, after decompression.
  std::uint64_t position() const noexcept { return position_; }

  /// All of `out`, or FileError with the position at which the file ends or stops making sense.
  void read(std::span<std::byte> out);
  /// What there is, up to out.size(); 0 at the end (by then gzip's own checksum has been compared).
  std::size_t read_some(std::span<std::byte> out);
  /// Throws FileError when bytes are left.
  void expect_end();
  /// Throws FileError when `bytes` more cannot come: of a plain file by its size, of a gzip file because no deflate
  /// stream unpacks to more than 1032 times its size. Before memory is taken for what a header promises. What cannot
  /// tell its size, as a pipe, may hold anything.
  void expect_room(std::uint64_t bytes) const;

 private:
  struct Stream;
  std::filesystem::path path_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::io
