// NumPy's .npy (numpy.lib.format): "\x93NUMPY", major, minor, the header's length (uint16 in version 1, uint32 from 2
// on, little-endian), the header (a Python dictionary literal with descr, fortran_order, shape), then the elements. An
// .npz is a ZIP archive of such files.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/unknown_name.hpp"
#include "io/formats/array_source.hpp"
#include "io/formats/zip_archive.hpp"
#include "io/shards/shard_file.hpp"
#include "io/text/visible_text.hpp"

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
      {"u1", FileType::uint8}, {"b1", FileType::int8},    {"i1", FileType::int8},   {"u2", FileType::uint16},
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

ArrayFile read_header(ByteReader bytes) {
  const std::filesystem::path path = bytes.path();
  ArrayFile file{.bytes = std::move(bytes), .type = FileType::other, .big_endian = false, .shape = {}};
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

/// An array's name in its archive, without the .npy that NumPy appends.
std::string array_name(const ZipMember& member) {
  constexpr std::string_view kExtension = ".npy";
  return member.name.ends_with(kExtension) ? member.name.substr(0, member.name.size() - kExtension.size())
                                           : member.name;
}

/// The arrays of these names; throws UnknownName that lists those that are there.
std::vector<NamedArray> arrays_of(const std::filesystem::path& file, const std::vector<ZipMember>& members,
                                  const std::vector<std::string>& names, std::string_view option) {
  std::vector<NamedArray> arrays;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(members, name, array_name);
    if (found == members.end()) {
      std::vector<std::string> all;
      std::ranges::transform(members, std::back_inserter(all), array_name);
      throw UnknownName(fmt::format("{}: has no array {}; it holds {}: --{} names one", file.string(), name,
                                    all.empty() ? "none" : fmt::format("{}", fmt::join(visible_lines(all), ", ")),
                                    option));
    }
    arrays.push_back({.name = name, .open = [file, member = *found] { return read_header(ByteReader(file, member)); }});
  }
  return arrays;
}

}  // namespace

ArrayFile open_npy_array(const std::filesystem::path& path) { return read_header(ByteReader(path)); }

std::unique_ptr<SampleSource> open_npz(const std::filesystem::path& file, const std::string& x, const std::string& y,
                                       const ArrayLabels& labels) {
  constexpr const char* kUsualLabels = "y";
  const std::vector<ZipMember> members = zip_members(file);
  const bool no_labels = y == kUsualLabels && std::ranges::find(members, y, array_name) == members.end();
  std::vector<NamedArray> inputs = arrays_of(file, members, names_in(x), "x-name"),
                          targets =
                              arrays_of(file, members, no_labels ? std::vector<std::string>{} : names_in(y), "y-name");
  std::vector<std::string> names;
  for (const auto* arrays : {&inputs, &targets}) {
    for (const NamedArray& array : *arrays) {
      if (std::ranges::find(names, array.name) != names.end()) {
        fail(file, fmt::format("{} is named twice: a field has one name", array.name));
      }
      names.push_back(array.name);
    }
  }
  const std::vector<std::string> shown = short_names(names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    (i < inputs.size() ? inputs[i] : targets[i - inputs.size()]).name = shown[i];
  }
  return make_array_source(describe_files("npz", {file}), inputs, targets, labels);
}

std::unique_ptr<SampleSource> open_npy(const std::filesystem::path& x, const std::filesystem::path& y,
                                       const ArrayLabels& labels) {
  return make_array_source("npy", open_npy_array, x, y, labels);
}

}  // namespace lockstep::io
