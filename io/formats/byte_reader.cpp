#include "io/formats/byte_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include "io/files/durable_file.hpp"

namespace lockstep::io {

namespace {

constexpr std::uint64_t kMaxUnpacked = 1032;  ///< largest number of bytes that one byte of a deflate stream unpacks to

}  // namespace

/// The part that differs between plain or gzip files and files in archives.
struct ByteReader::Stream {
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Reads up to out.size() bytes from `position`; 0 at the end.
  virtual std::size_t read_some(std::span<std::byte> out, const std::filesystem::path& path,
                                std::uint64_t position) = 0;
  struct Size {
    std::uint64_t stored = 0;  ///< bytes in the file or archive
    std::uint64_t most = 0;    ///< limit of the unpacked bytes
  };
  /// nullopt: unknown.
  virtual std::optional<Size> size(const std::filesystem::path& path) const = 0;
  virtual const char* kind() const noexcept = 0;  ///< for messages
};

struct ByteReader::GzipStream final : Stream {
  gzFile file = nullptr;
  ~GzipStream() override {
    if (file != nullptr) gzclose(file);
  }

  std::size_t read_some(std::span<std::byte> out, const std::filesystem::path& path, std::uint64_t position) override {
    constexpr std::size_t kMax = std::size_t{1} << 30;  // gzread's count is an unsigned int, its result an int
    const int got = gzread(file, out.data(), static_cast<unsigned>(std::min(out.size(), kMax)));
    int code = Z_OK;
    const char* text = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      const std::string reason = code == Z_ERRNO ? std::generic_category().message(errno)
                                 : code == Z_BUF_ERROR
                                     ? "the gzip stream is cut off; copy or download the file again"
                                     : fmt::format("the gzip stream is damaged ({}); copy or download the file again",
                                                   code == Z_DATA_ERROR ? "data error" : text);
      throw FileError(fmt::format("{}: at byte {} (unpacked): {}", path.string(), position + std::max(got, 0), reason));
    }
    return static_cast<std::size_t>(got);
  }

  std::optional<Size> size(const std::filesystem::path& path) const override {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) return std::nullopt;
    const std::uint64_t stored = std::filesystem::file_size(path, unknown);
    if (unknown) return std::nullopt;
    return Size{.stored = stored, .most = gzdirect(file) == 0 ? stored * kMaxUnpacked : stored};
  }

  const char* kind() const noexcept override { return gzdirect(file) == 0 ? " (gzip)" : ""; }
};

struct ByteReader::ZipStream final : Stream {
  ZipStream(const std::filesystem::path& archive, const ZipMember& of)
      : file(open_file(archive, O_RDONLY, "open")), member(of) {
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    if (member.is_deflated && inflateInit2(&inflater, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~ZipStream() override {
    if (member.is_deflated) inflateEnd(&inflater);
  }

  std::size_t read_some(std::span<std::byte> out, const std::filesystem::path& path, std::uint64_t position) override {
    constexpr std::size_t kMax = std::size_t{1} << 30;  // zlib counts in unsigned int
    const std::uint64_t left = member.size - position;
    out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>({out.size(), left, kMax})));
    if (out.empty()) return 0;
    const auto got = static_cast<std::size_t>(member.is_deflated ? inflated(out, path) : plain(out, path));
    checksum = crc32(checksum, reinterpret_cast<const Bytef*>(out.data()), static_cast<uInt>(got));
    if (got == left && checksum != member.checksum) damaged(path);
    return got;
  }

  std::optional<Size> size(const std::filesystem::path&) const override {
    const std::uint64_t most = member.is_deflated ? member.stored * kMaxUnpacked : member.stored;
    return Size{.stored = member.stored, .most = std::min(most, member.size)};
  }

  const char* kind() const noexcept override { return ""; }

 private:
  [[noreturn]] static void damaged(const std::filesystem::path& path) {
    throw FileError(
        fmt::format("{}: is damaged: its bytes are not those of its checksum; copy or make it again", path.string()));
  }

  std::size_t plain(std::span<std::byte> out, const std::filesystem::path& path) {
    read_at(file, out, member.offset + used, path);
    used += out.size();
    return out.size();
  }

  std::size_t inflated(std::span<std::byte> out, const std::filesystem::path& path) {
    inflater.next_out = reinterpret_cast<Bytef*>(out.data());
    inflater.avail_out = static_cast<uInt>(out.size());
    int code = Z_OK;
    while (inflater.avail_out > 0 && code == Z_OK) {
      if (inflater.avail_in == 0) {
        packed.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPackedBytes, member.stored - used)));
        if (packed.empty()) damaged(path);
        read_at(file, packed, member.offset + used, path);
        used += packed.size();
        inflater.next_in = reinterpret_cast<Bytef*>(packed.data());
        inflater.avail_in = static_cast<uInt>(packed.size());
      }
      code = inflate(&inflater, Z_NO_FLUSH);
    }
    if (code != Z_OK && code != Z_STREAM_END) damaged(path);
    if (inflater.avail_out > 0) damaged(path);  // the stream is shorter than the archive says
    return out.size();
  }

  static constexpr std::size_t kPackedBytes = std::size_t{1} << 18;
  Descriptor file;
  ZipMember member;
  z_stream inflater{};
  std::vector<std::byte> packed;
  std::uint64_t used = 0;  ///< stored bytes that were read
  uLong checksum = 0;
};

ByteReader::ByteReader(std::filesystem::path path) : path_(std::move(path)) {
  auto stream = std::make_unique<GzipStream>();
  if (std::filesystem::is_directory(path_)) throw FileError(fmt::format("{}: is a folder, not a file", path_.string()));
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw FileError(fmt::format("{}: cannot open it: {}", path_.string(), std::generic_category().message(errno)));
  }
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  stream->file = gzdopen(descriptor, "rb");
  if (stream->file == nullptr) {
    ::close(descriptor);
    throw FileError(fmt::format("{}: out of memory", path_.string()));
  }
  gzbuffer(stream->file, 1U << 18);
  if (path_.extension() == ".gz" && gzdirect(stream->file) == 1) {
    throw FileError(fmt::format("{}: is named .gz but is not a gzip file; was it unpacked, or cut?", path_.string()));
  }
  stream_ = std::move(stream);
}

ByteReader::ByteReader(const std::filesystem::path& archive, const ZipMember& member)
    : path_(archive / member.name), stream_(std::make_unique<ZipStream>(archive, member)) {}

ByteReader::~ByteReader() = default;
ByteReader::ByteReader(ByteReader&&) noexcept = default;
ByteReader& ByteReader::operator=(ByteReader&&) noexcept = default;

std::size_t ByteReader::read_some(std::span<std::byte> out) {
  const std::size_t got = stream_->read_some(out, path_, position_);
  position_ += static_cast<std::uint64_t>(got);
  return got;
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
  const std::optional<Stream::Size> size = stream_->size(path_);
  if (!size || (position_ <= size->most && bytes <= size->most - position_)) return;
  throw FileError(
      {.file = path_,
       .what = fmt::format("its header promises {} bytes behind it, the file ends at byte {}{}: it is damaged "
                           "or cut off; copy or download it again",
                           bytes, size->stored, stream_->kind())});
}

void ByteReader::expect_end() {
  std::byte one{};
  const std::uint64_t end = position_;
  if (read_some({&one, 1}) != 0) {
    throw FileError(fmt::format("{}: goes on after byte {}, where its header says it ends", path_.string(), end));
  }
}

}  // namespace lockstep::io
