#include "io/exchange/npz.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

namespace lockstep::io {

namespace {

constexpr std::uint64_t kNoRoom16 = 0xffff, kNoRoom32 = 0xffffffff;  ///< "it stands in the field of zip64"

/// Little-endian numbers, one after another.
class Record {
 public:
  Record& u16(std::uint64_t value) { return number(value, 2); }
  Record& u32(std::uint64_t value) { return number(value, 4); }
  Record& u64(std::uint64_t value) { return number(value, 8); }
  Record& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  Record& number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

struct Member {
  std::string name, header;
  std::uint64_t bytes = 0, checksum = 0, offset = 0;
};

std::uint64_t crc(std::uint64_t sum, std::string_view bytes) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // of zlib's 32-bit lengths
  for (std::size_t first = 0; first < bytes.size(); first += kAtOnce) {
    const std::string_view some = bytes.substr(first, kAtOnce);
    sum = ::crc32(static_cast<uLong>(sum), reinterpret_cast<const Bytef*>(some.data()), static_cast<uInt>(some.size()));
  }
  return sum;
}

std::string_view bytes_of_values(const NamedTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size_bytes()};
}

bool is_wide(std::uint64_t value) { return value >= kNoRoom32; }
std::uint64_t narrow(std::uint64_t value) { return is_wide(value) ? kNoRoom32 : value; }

constexpr std::uint64_t kVersion = 20, kVersionZip64 = 45;
constexpr std::uint64_t kDate = (1980 - 1980) << 9 | 1 << 5 | 1;  ///< 1 January 1980: equal content, equal bytes
constexpr std::uint64_t kUtf8Name = 1 << 11;

/// What the local header and the central directory say alike.
Record& common(Record& record, const Member& member, bool wide) {
  return record.u16(wide ? kVersionZip64 : kVersion)
      .u16(kUtf8Name)
      .u16(0)  // stored
      .u16(0)
      .u16(kDate)
      .u32(member.checksum);
}

std::string local_header(const Member& member) {
  const bool wide = is_wide(member.bytes);
  Record record;
  common(record.u32(0x04034b50), member, wide)
      .u32(narrow(member.bytes))
      .u32(narrow(member.bytes))
      .u16(member.name.size())
      .u16(wide ? 20 : 0)
      .text(member.name);
  if (wide) record.u16(1).u16(16).u64(member.bytes).u64(member.bytes);
  return record.bytes();
}

std::string directory_entry(const Member& member) {
  Record extra;
  if (is_wide(member.bytes)) extra.u64(member.bytes).u64(member.bytes);
  if (is_wide(member.offset)) extra.u64(member.offset);
  const std::size_t length = extra.bytes().size();
  Record record;
  common(record.u32(0x02014b50).u16(kVersionZip64), member, length > 0)
      .u32(narrow(member.bytes))
      .u32(narrow(member.bytes))
      .u16(member.name.size())
      .u16(length > 0 ? length + 4 : 0)
      .u16(0)
      .u16(0)
      .u16(0)
      .u32(0)
      .u32(narrow(member.offset))
      .text(member.name);
  if (length > 0) record.u16(1).u16(length).text(extra.bytes());
  return record.bytes();
}

/// The end of the directory, which begins at `begin` and has `bytes`.
std::string end_of_archive(std::uint64_t members, std::uint64_t begin, std::uint64_t bytes) {
  Record record;
  if (members >= kNoRoom16 || is_wide(begin) || is_wide(bytes)) {
    record.u32(0x06064b50).u64(44).u16(kVersionZip64).u16(kVersionZip64).u32(0).u32(0);
    record.u64(members).u64(members).u64(bytes).u64(begin);
    record.u32(0x07064b50).u32(0).u64(begin + bytes).u32(1);
  }
  const std::uint64_t count = std::min(members, kNoRoom16);
  return record.u32(0x06054b50)
      .u16(0)
      .u16(0)
      .u16(count)
      .u16(count)
      .u32(narrow(bytes))
      .u32(narrow(begin))
      .u16(0)
      .bytes();
}

}  // namespace

std::string npy_header(std::span<const std::int64_t> shape) {
  const std::string extents = fmt::format("{}{}", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", extents);
  constexpr std::size_t kBefore = 10, kMultiple = 64;
  text.append(kMultiple - 1 - (kBefore + text.size()) % kMultiple, ' ');
  text += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + Record().u16(text.size()).bytes() + text;
}

void write_npz(const std::filesystem::path& file, std::span<const NamedTensor> tensors, IfThere if_there) {
  std::vector<Member> members;
  std::uint64_t offset = 0;
  std::string directory;
  for (const NamedTensor& tensor : tensors) {
    Member member{.name = tensor.name + ".npy", .header = npy_header(tensor.shape), .offset = offset};
    member.bytes = member.header.size() + tensor.values.size_bytes();
    member.checksum = crc(crc(0, member.header), bytes_of_values(tensor));
    offset += local_header(member).size() + member.bytes;
    directory += directory_entry(member);
    members.push_back(std::move(member));
  }
  const std::string end = end_of_archive(members.size(), offset, directory.size());
  OutputFile out(file, if_there, offset + directory.size() + end.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    out.write(local_header(members[i]));
    out.write(members[i].header);
    out.write(bytes_of_values(tensors[i]));
  }
  out.write(directory);
  out.write(end);
  out.finish();
}

}  // namespace lockstep::io
