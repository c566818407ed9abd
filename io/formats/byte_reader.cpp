#include "io/formats/byte_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

namespace lockstep::io {

struct ByteReader::Stream {
  gzFile file = nullptr;
  Stream() = default;
  ~Stream() {
    if (file != nullptr) gzclose(file);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

ByteReader::ByteReader(std::filesystem::path path) : path_(std::move(path)), stream_(std::make_unique<Stream>()) {
  if (std::filesystem::is_directory(path_)) throw FileError(fmt::format("{}: is a folder, not a file", path_.string()));
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw FileError(fmt::format("{}: cannot open it: {}", path_.string(), std::generic_category().message(errno)));
  }
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  stream_->file = gzdopen(descriptor, "rb");
  if (stream_->file == nullptr) {
    ::close(descriptor);
    throw FileError(fmt::format("{}: out of memory", path_.string()));
  }
  gzbuffer(stream_->file, 1U << 18);
  if (path_.extension() == ".gz" && gzdirect(stream_->file) == 1) {
    throw FileError(fmt::format("{}: is named .gz but is not a gzip file; was it unpacked, or cut?", path_.string()));
  }
}

ByteReader::~ByteReader() = default;
ByteReader::ByteReader(ByteReader&&) noexcept = default;
ByteReader& ByteReader::operator=(ByteReader&&) noexcept = default;

std::size_t ByteReader::read_some(std::span<std::byte> out) {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // gzread's count is an unsigned int, its result an int
  const int got = gzread(stream_->file, out.data(), static_cast<unsigned>(std::min(out.size(), kMax)));
  int code = Z_OK;
  const char* text = gzerror(stream_->file, &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    const std::string reason = code == Z_ERRNO ? std::generic_category().message(errno)
                               : code == Z_BUF_ERROR
                                   ? "the gzip stream is cut off; copy or download the file again"
                                   : fmt::format("the gzip stream is damaged ({}); copy or download the file again",
                                                 code == Z_DATA_ERROR ? "data error" : text);
    throw FileError(fmt::format("{}: at byte {} (unpacked): {}", path_.string(), position_ + std::max(got, 0), reason));
  }
  position_ += static_cast<std::uint64_t>(got);
  return static_cast<std::size_t>(got);
}

void ByteReader::read(std::span<std::byte> out) {
  while (!out.empty()) {
    const std::size_t got = read_some(out);
    if (got == 0) {
      throw FileError(fmt::format("{}: ends at byte {}, {} more expected; the file is cut off", path_.string(),
                                  position_, out.size()));
    }
    out = out.subspan(got);
  }
}

void ByteReader::expect_room(std::uint64_t bytes) const {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path_, unknown)) return;
  const std::uint64_t size = std::filesystem::file_size(path_, unknown);
  if (unknown) return;
  constexpr std::uint64_t kMaxUnpacked = 1032;
  const bool packed = gzdirect(stream_->file) == 0;
  const std::uint64_t most = packed ? size * kMaxUnpacked : size;
  if (position_ <= most && bytes <= most - position_) return;
  throw FileError(
      {.file = path_,
       .what = fmt::format("its header promises {} bytes behind it, the file ends at byte {}{}: it is damaged "
                           "or cut off; copy or download it again",
                           bytes, size, packed ? " (gzip)" : "")});
}

void ByteReader::expect_end() {
  std::byte one{};
  const std::uint64_t end = position_;
  if (read_some({&one, 1}) != 0) {
    throw FileError(fmt::format("{}: goes on after byte {}, where its header says it ends", path_.string(), end));
  }
}

}  // namespace lockstep::io
