// IDX (the MNIST family): two zero bytes, a type byte, the number of dimensions, one big-endian uint32 per dimension,
// then the elements, big-endian, last dimension fastest.
#include <array>

#include <fmt/format.h>

#include "io/formats/array_source.hpp"

namespace lockstep::io {
namespace {

FileType type_of_code(unsigned code) {
  switch (code) {
    case 0x08:
      return FileType::uint8;
    case 0x09:
      return FileType::int8;
    case 0x0B:
      return FileType::int16;
    case 0x0C:
      return FileType::int32;
    case 0x0D:
      return FileType::float32;
    case 0x0E:
      return FileType::float64;
    default:
      return FileType::other;
  }
}

ArrayFile open_idx(const std::filesystem::path& path) {
  ArrayFile file{.bytes = ByteReader(path), .type = FileType::other, .big_endian = true, .shape = {}};
  std::array<std::byte, 4> head{};
  file.bytes.read(head);
  file.type = type_of_code(std::to_integer<unsigned>(head[2]));
  if (head[0] != std::byte{0} || head[1] != std::byte{0} || file.type == FileType::other) {
    throw FileError(
        fmt::format("{}: is not an IDX file: it begins with {:02x} {:02x} {:02x} {:02x}, expected 00 00 TYPE "
                    "DIMENSIONS with TYPE 08, 09, 0b, 0c, 0d or 0e",
                    path.string(), std::to_integer<unsigned>(head[0]), std::to_integer<unsigned>(head[1]),
                    std::to_integer<unsigned>(head[2]), std::to_integer<unsigned>(head[3])));
  }
  for (unsigned dimension = 0; dimension < std::to_integer<unsigned>(head[3]); ++dimension) {
    std::array<std::byte, 4> extent{};
    file.bytes.read(extent);
    std::int64_t value = 0;
    for (const std::byte digit : extent) value = value * 256 + std::to_integer<std::int64_t>(digit);
    file.shape.push_back(value);
  }
  return file;
}

}  // namespace

std::unique_ptr<SampleSource> open_idx(const std::filesystem::path& x, const std::filesystem::path& y,
                                       const ArrayLabels& labels) {
  return make_array_source("idx", open_idx, x, y, labels);
}

}  // namespace lockstep::io
