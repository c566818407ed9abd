#include "io/files/raw_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint64_t kSamples = 512;

}  // namespace

RawReader::RawReader(const std::vector<std::filesystem::path>& files) : buffer_(kPiece) {
  for (const std::filesystem::path& path : files) {
    File file{.path = path, .descriptor = open_file(path, O_RDONLY, "read"), .first = bytes_, .bytes = 0};
    struct stat status {};
    if (::fstat(file.descriptor.get(), &status) != 0) {
      throw FileError(fmt::format("cannot read {}: {}", path.string(), std::generic_category().message(errno)));
    }
    file.bytes = static_cast<std::uint64_t>(status.st_size);
    bytes_ += file.bytes;
    if (file.bytes > 0) files_.push_back(std::move(file));
  }
}

const RawReader::File& RawReader::file_at(std::uint64_t position) const {
  const auto behind = std::upper_bound(files_.begin(), files_.end(), position,
                                       [](std::uint64_t at, const File& file) { return at < file.first; });
  return *(behind - 1);
}

void RawReader::read(std::uint64_t first, std::uint64_t count) {
  if (bytes_ == 0) return;
  std::uint64_t position = first % bytes_;
  while (count > 0) {
    const File& file = file_at(position);
    const std::uint64_t offset = position - file.first;
    const std::size_t wanted = std::min<std::uint64_t>({kPiece, count, file.bytes - offset});
    const ssize_t got = ::pread(file.descriptor.get(), buffer_.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw FileError(fmt::format("cannot read {} at byte {}: {}", file.path.string(), offset,
                                  got == 0 ? "the file has become shorter" : std::generic_category().message(errno)));
    }
    count -= static_cast<std::uint64_t>(got);
    position = (position + static_cast<std::uint64_t>(got)) % bytes_;
  }
}

void RawReader::forget() const noexcept {
  for (const File& file : files_) ::posix_fadvise(file.descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
}

std::optional<double> RawReader::cached_share() const {
  if (bytes_ == 0) return std::nullopt;
  std::uint64_t there = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t position = bytes_ / kSamples * i + bytes_ % kSamples * i / kSamples;
    const File& file = file_at(position);
    std::byte byte{};
    iovec place{.iov_base = &byte, .iov_len = 1};
    ssize_t got = 0;
    do {
      got = ::preadv2(file.descriptor.get(), &place, 1, static_cast<off_t>(position - file.first), RWF_NOWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno != EAGAIN) return std::nullopt;
    if (got == 1) ++there;
  }
  return static_cast<double>(there) / static_cast<double>(kSamples);
}

}  // namespace lockstep::io
