// NumPy's .npy (numpy.lib.format): "\x93NUMPY", major, minor, the header's length (uint16 in version 1, uint32 from 2
// on, little-endian), the header (a Python dictionary literal with descr, fortran_order, shape), then the elements.
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "io/formats/array_source.hpp"

namespace lockstep::io {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw FileError(fmt::format("{}: {}", path.string(), what));
}

/// The text after `'key':`, without leading blanks.
std::string_view value_of(const std::filesystem::path& path, std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}'", key);
  std::size_t at = header.find(quoted);
  if (at != std::string_view::npos) at = header.find_first_not_of(" :", at + quoted.size());
  if (at == std::string_view::npos) fail(path, fmt::format("its NPY header has no {}", key));
  return header.substr(at);
}

FileType type_of_code(std::string_view code) {
  constexpr std::pair<std::string_view, FileType> kCodes[] = {
      {"u1", FileType::uint8}, {"b1", FileType::uint8},   {"i1", FileType::int8},   {"u2", FileType::uint16},
      {"i2", FileType::int16}, {"u4", FileType::uint32},  {"i4", FileType::int32},  {"u8", FileType::uint64},
      {"i8", FileType::int64}, {"f4", FileType::float32}, {"f8", FileType::float64}};
  for (const auto& [name, type] : kCodes) {
    if (name == code) return type;
  }
  return FileType::other;
}

void parse_type(ArrayFile& file, std::string_view header) {
  const std::string_view text = value_of(file.bytes.path(), header, "descr");
  const std::string_view descr = text.starts_with('\'') ? text.substr(1, text.find('\'', 1) - 1) : "";
  file.type = descr.size() < 2 ? FileType::other : type_of_code(descr.substr(1));
  file.big_endian = descr.starts_with('>');
  if (file.type == FileType::other ||
      (!descr.empty() && std::string_view("<>|=").find(descr[0]) == std::string_view::npos)) {
    fail(file.bytes.path(), fmt::format("element type {} is not supported; save it with numpy.save(file, "
                                        "array.astype('float32')) or another plain number type",
                                        text.substr(0, text.find(',', 1))));
  }
}

void parse_shape(ArrayFile& file, std::string_view header) {
  std::string_view text = value_of(file.bytes.path(), header, "shape");
  const std::size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) fail(file.bytes.path(), "its NPY header has no shape");
  text = text.substr(1, end - 1);
  while (true) {
    const std::size_t begin = text.find_first_not_of(" ,");
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc()) fail(file.bytes.path(), "its NPY header has a shape that is no list of numbers");
    file.shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  }
}

ArrayFile open_npy(const std::filesystem::path& path) {
  ArrayFile file{.bytes = ByteReader(path), .type = FileType::other, .big_endian = false, .shape = {}};
  std::array<std::byte, 8> head{};
  file.bytes.read(head);
  if (std::memcmp(head.data(), "\x93NUMPY", 6) != 0)
    fail(path, "is not an NPY file: it does not begin with \\x93NUMPY");
  const int version = std::to_integer<int>(head[6]);
  if (version < 1 || version > 3) fail(path, fmt::format("has NPY version {}; 1, 2 and 3 are known", version));
  std::array<std::byte, 4> digits{};
  file.bytes.read(std::span(digits).first(version == 1 ? 2 : 4));
  std::size_t length = 0;
  for (std::size_t i = digits.size(); i-- > 0;) length = length * 256 + std::to_integer<std::size_t>(digits[i]);
  if (length > (std::size_t{1} << 20)) fail(path, fmt::format("its NPY header of {} bytes is impossible", length));
  std::string header(length, ' ');
  file.bytes.read(std::as_writable_bytes(std::span(header)));

  parse_type(file, header);
  if (value_of(path, header, "fortran_order").starts_with("True")) {
    fail(path,
         "is in Fortran order, in which samples are not contiguous; save it with numpy.save(file, "
         "numpy.ascontiguousarray(array))");
  }
  parse_shape(file, header);
  return file;
}

}  // namespace

std::unique_ptr<SampleSource> open_npy(const std::filesystem::path& x, const std::filesystem::path& y,
                                       const ArrayLabels& labels) {
  return make_array_source("npy", open_npy, x, y, labels);
}

}  // namespace lockstep::io
