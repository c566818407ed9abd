/// \file
/// Lists the files in a ZIP archive, such as NumPy's .npz (PKWARE's APPNOTE.TXT, with its 64-bit extension).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::io {

/// A file in an archive, stored or deflated.
struct ZipMember {
  std::string name;          ///< as in the archive: "image.npy"
  std::uint64_t offset = 0;  ///< position of its first stored byte in the archive
  std::uint64_t stored = 0;  ///< bytes in the archive
  std::uint64_t size = 0;    ///< bytes after unpacking
  bool is_deflated = false;
  std::uint32_t checksum = 0;  ///< CRC-32 of the unpacked bytes
};

/// All files of an archive, in its order. Throws FileError for a file that is not an archive, or is damaged, encrypted,
/// split into parts, or compressed by another method.
std::vector<ZipMember> zip_members(const std::filesystem::path& archive);

}  // namespace lockstep::io
