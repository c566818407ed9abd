#include "io/formats/zip_archive.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>

#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::io {
namespace {

constexpr std::uint32_t kEndMark = 0x06054b50, kWideEndMark = 0x06064b50, kWideLocatorMark = 0x07064b50;
constexpr std::uint32_t kEntryMark = 0x02014b50, kFileMark = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kWideLocatorBytes = 20, kWideEndBytes = 56, kEntryBytes = 46, kFileBytes = 30;
constexpr std::uint32_t kIsWide = 0xFFFFFFFF;  ///< the value is in a 64-bit field
constexpr std::uint16_t kWideExtra = 1;

/// A number of an archive, little-endian.
template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  return static_cast<Number>(value);
}

class Archive {
 public:
  explicit Archive(const std::filesystem::path& path)
      : path_(path), file_(open_file(path, O_RDONLY, "open")), bytes_(std::filesystem::file_size(path)) {}

  std::vector<ZipMember> members() const {
    const Directory directory = find_directory();
    std::vector<std::byte> entries = read(directory.offset, directory.bytes);
    std::vector<ZipMember> all;
    std::span<const std::byte> rest(entries);
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
      if (rest.size() < kEntryBytes || number_at<std::uint32_t>(rest, 0) != kEntryMark) damaged();
      const std::size_t name = number_at<std::uint16_t>(rest, 28), extra = number_at<std::uint16_t>(rest, 30),
                        comment = number_at<std::uint16_t>(rest, 32), all_bytes = kEntryBytes + name + extra + comment;
      if (rest.size() < all_bytes) damaged();
      all.push_back(
          member(rest.first(kEntryBytes), rest.subspan(kEntryBytes, name), rest.subspan(kEntryBytes + name, extra)));
      rest = rest.subspan(all_bytes);
    }
    return all;
  }

 private:
  struct Directory {
    std::uint64_t offset = 0, bytes = 0, entries = 0;
  };

  [[noreturn]] void fail(std::string_view what) const { throw FileError(fmt::format("{}: {}", path_.string(), what)); }
  [[noreturn]] void damaged() const { fail("its list of arrays is damaged; copy or make it again"); }

  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t count) const {
    if (offset > bytes_ || count > bytes_ - offset) damaged();
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    read_at(file_, bytes, offset, path_);
    return bytes;
  }

  /// Finds the archive's last record, which only a comment of up to 65,535 bytes may follow.
  Directory find_directory() const {
    constexpr std::uint64_t kMaxComment = 0xFFFF;
    const std::uint64_t tail = std::min<std::uint64_t>(bytes_, kEndBytes + kMaxComment);
    const std::vector<std::byte> last = read(bytes_ - tail, tail);
    for (std::size_t at = last.size() < kEndBytes ? 0 : last.size() - kEndBytes + 1; at-- > 0;) {
      const std::span<const std::byte> end = std::span(last).subspan(at);
      if (number_at<std::uint32_t>(end, 0) != kEndMark) continue;
      if (number_at<std::uint16_t>(end, 20) != end.size() - kEndBytes) continue;
      const Directory directory{.offset = number_at<std::uint32_t>(end, 16),
                                .bytes = number_at<std::uint32_t>(end, 12),
                                .entries = number_at<std::uint16_t>(end, 10)};
      return wide_directory(bytes_ - tail + at).value_or(directory);
    }
    fail("is not an NPZ file: it has no end of a ZIP archive; it is cut off, or something else");
  }

  /// Reads the directory's position from the 64-bit record before the end of the archive, if there is one.
  std::optional<Directory> wide_directory(std::uint64_t end) const {
    if (end < kWideLocatorBytes) return std::nullopt;
    const std::vector<std::byte> locator = read(end - kWideLocatorBytes, kWideLocatorBytes);
    if (number_at<std::uint32_t>(locator, 0) != kWideLocatorMark) return std::nullopt;
    const std::vector<std::byte> wide = read(number_at<std::uint64_t>(locator, 8), kWideEndBytes);
    if (number_at<std::uint32_t>(wide, 0) != kWideEndMark) damaged();
    return Directory{.offset = number_at<std::uint64_t>(wide, 48),
                     .bytes = number_at<std::uint64_t>(wide, 40),
                     .entries = number_at<std::uint64_t>(wide, 32)};
  }

  ZipMember member(std::span<const std::byte> entry, std::span<const std::byte> name,
                   std::span<const std::byte> extra) const {
    constexpr std::uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8;
    ZipMember member{.name = std::string(reinterpret_cast<const char*>(name.data()), name.size()),
                     .checksum = number_at<std::uint32_t>(entry, 16)};
    const std::uint16_t flags = number_at<std::uint16_t>(entry, 8), method = number_at<std::uint16_t>(entry, 10);
    if ((flags & kEncrypted) != 0)
      fail(fmt::format("{} is encrypted: save it without a password", visible_line(member.name)));
    if (method != kStored && method != kDeflated) {
      fail(
          fmt::format("{} is compressed by method {}, and numpy.savez and numpy.savez_compressed write others: save it "
                      "with one of them",
                      member.name, method));
    }
    member.is_deflated = method == kDeflated;
    member.size = number_at<std::uint32_t>(entry, 24);
    member.stored = number_at<std::uint32_t>(entry, 20);
    std::uint64_t header = number_at<std::uint32_t>(entry, 42);
    take_wide(extra, {&member.size, &member.stored, &header});
    const std::vector<std::byte> local = read(header, kFileBytes);
    if (number_at<std::uint32_t>(local, 0) != kFileMark) damaged();
    member.offset = header + kFileBytes + number_at<std::uint16_t>(local, 26) + number_at<std::uint16_t>(local, 28);
    const bool fits = member.offset <= bytes_ && member.stored <= bytes_ - member.offset;
    if (!fits || (!member.is_deflated && member.stored != member.size)) damaged();
    return member;
  }

  /// Replaces the numbers that do not fit into 32 bits by the entry's 64-bit numbers, which are in the same order.
  void take_wide(std::span<const std::byte> extra, std::initializer_list<std::uint64_t*> numbers) const {
    while (extra.size() >= 4) {
      const std::size_t length = number_at<std::uint16_t>(extra, 2);
      if (length > extra.size() - 4) damaged();
      std::span<const std::byte> part = extra.subspan(4, length);
      if (number_at<std::uint16_t>(extra, 0) == kWideExtra) {
        for (std::uint64_t* const number : numbers) {
          if (*number != kIsWide) continue;
          if (part.size() < sizeof(std::uint64_t)) damaged();
          *number = number_at<std::uint64_t>(part, 0);
          part = part.subspan(sizeof(std::uint64_t));
        }
      }
      extra = extra.subspan(4 + length);
    }
  }

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_;
};

}  // namespace

std::vector<ZipMember> zip_members(const std::filesystem::path& archive) { return Archive(archive).members(); }

}  // namespace lockstep::io
