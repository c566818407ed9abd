/// \file
/// The contents of a ZIP archive, such as NumPy's .npz (APPNOTE.TXT of PKWARE, with its extension to 64 bits).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::io {

/// A file in an archive, plain or deflated.
struct ZipMember {
  std::string name;          ///< as the archive has it: "image.npy"
  std::uint64_t offset = 0;  ///< in the archive: its first byte, as stored
  std::uint64_t stored = 0;  ///< bytes in the archive
  std::uint64_t size = 0;    ///< bytes, unpacked
  bool is_deflated = false;
  std::uint32_t checksum = 0;  ///< CRC-32 of the unpacked bytes
};

/// All files of an archive, in its order. Throws FileError: no archive, damaged, encrypted, in several parts,
/// compressed in another way.
std::vector<ZipMember> zip_members(const std::filesystem::path& archive);

}  // namespace lockstep::io
