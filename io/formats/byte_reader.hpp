/// \file
/// Reads a file forward in pieces of exact size, plain or gzip (recognised by content), or a file within an archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "io/files/file_error.hpp"
#include "io/formats/zip_archive.hpp"

namespace lockstep::io {

class ByteReader {
 public:
  /// Throws FileError if the file is missing, unreadable, or named .gz without being gzip.
  explicit ByteReader(std::filesystem::path path);
  /// Reads a file in a ZIP archive. Messages name it ARCHIVE/NAME. At its end its checksum is verified.
  ByteReader(const std::filesystem::path& archive, const ZipMember& member);
  ~ByteReader();
  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Position of the next byte, after decompression.
  std::uint64_t position() const noexcept { return position_; }

  /// Fills all of `out`. Throws FileError with the position at which the file ends or is damaged.
  void read(std::span<std::byte> out);
  /// Reads up to out.size() bytes; returns 0 at the end (after the check of gzip's own checksum).
  std::size_t read_some(std::span<std::byte> out);
  /// Throws FileError if bytes are left.
  void expect_end();
  /// Throws FileError if `bytes` more bytes cannot follow: the plain file is too small, or the gzip file is, because a
  /// deflate stream unpacks to at most 1032 times its size. Call it before you allocate memory for a size from a
  /// header. Files without a known size, such as pipes, pass.
  void expect_room(std::uint64_t bytes) const;

 private:
  struct Stream;
  struct GzipStream;
  struct ZipStream;
  std::filesystem::path path_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::io
