// Flat files of tokens, little-endian uint16, in the formats of the preparation scripts of nanoGPT (no header) and
// llm.c (a header of 256 int32: magic 20240520, version 1, the number of tokens, zeros).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are read as they lie in the file");

constexpr std::int32_t kMagic = 20240520;
constexpr std::uint64_t kHeaderBytes = 1024;
constexpr std::uint64_t kTokenBytes = 2;

struct TokenFile {
  std::filesystem::path path;
  std::uint64_t begin = 0;  ///< offset of the tokens
  std::int64_t tokens = 0;
};

TokenFile open_token_file(const std::filesystem::path& path) {
  ByteReader reader(path);
  const std::uint64_t bytes = std::filesystem::file_size(path);
  TokenFile file{.path = path, .begin = 0, .tokens = static_cast<std::int64_t>(bytes / kTokenBytes)};
  std::array<std::int32_t, 3> head{};
  if (bytes >= kHeaderBytes) reader.read(std::as_writable_bytes(std::span(head)));
  if (head[0] == kMagic) {
    if (head[1] != 1) {
      throw FileError(fmt::format("{}: its header has version {}; 1 (uint16 tokens) is known", path.string(), head[1]));
    }
    const std::uint64_t expected = kHeaderBytes + kTokenBytes * static_cast<std::uint32_t>(head[2]);
    if (bytes != expected) {
      throw FileError(fmt::format("{}: should have {} bytes after its header, has {}; copy or make it again",
                                  path.string(), expected, bytes));
    }
    file.begin = kHeaderBytes;
    file.tokens = static_cast<std::uint32_t>(head[2]);
  } else if (bytes % kTokenBytes != 0) {
    throw FileError(
        fmt::format("{}: {} bytes are no whole number of uint16 tokens; is it cut off?", path.string(), bytes));
  }
  if (file.tokens == 0) throw FileError(fmt::format("{}: holds no tokens", path.string()));
  return file;
}

class TokenFileSource final : public SampleSource {
 public:
  TokenFileSource(std::vector<TokenFile> files, std::int64_t vocabulary)
      : files_(std::move(files)), vocabulary_(vocabulary) {
    for (const TokenFile& file : files_) count_ += file.tokens;
  }

  std::vector<Field> fields() const override { return {{kTokensName, token_type(vocabulary_), {}}}; }
  std::int64_t count() const override { return count_; }
  std::string description() const override {
    std::vector<std::filesystem::path> paths;
    for (const TokenFile& file : files_) paths.push_back(file.path);
    return describe_files("tokens", paths);
  }
  bool labels_are_classes() const override { return false; }
  std::optional<TokenInfo> token_info() const override {
    return TokenInfo{.kind = "ids", .vocabulary = vocabulary_, .texts = {}};
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t size = size_of(token_type(vocabulary_));
    if (samples < 0 || buffers[0].size() != static_cast<std::size_t>(samples) * size) {
      throw std::invalid_argument("the buffer of tokens has the wrong size");
    }
    std::byte* out = buffers[0].data();
    while (samples > 0) {
      const std::span<const std::uint16_t> piece = next_piece(samples);
      for (const std::uint16_t token : piece) {
        const std::uint32_t wide = token;
        std::memcpy(out, &wide, size);
        out += size;
      }
      samples -= static_cast<std::int64_t>(piece.size());
    }
  }

 private:
  /// Reads at most `most` tokens, up to the end of the file.
  std::span<const std::uint16_t> next_piece(std::int64_t most) {
    if (done_ == 0) {
      if (file_ == files_.size()) throw std::invalid_argument("more tokens asked for than the files have");
      reader_.emplace(files_[file_].path);
      std::array<std::byte, kHeaderBytes> header;
      reader_->read(std::span(header).first(files_[file_].begin));
    }
    const auto count = static_cast<std::size_t>(std::min({most, files_[file_].tokens - done_, std::int64_t{1} << 16}));
    raw_.resize(count);
    reader_->read(std::as_writable_bytes(std::span(raw_)));
    for (std::size_t i = 0; i < count; ++i) {
      if (raw_[i] >= vocabulary_) {
        throw FileError(
            fmt::format("{}: token {} is {}, outside the vocabulary of {}; --vocabulary says how large it is",
                        files_[file_].path.string(), done_ + static_cast<std::int64_t>(i), raw_[i], vocabulary_));
      }
    }
    done_ += static_cast<std::int64_t>(count);
    if (done_ == files_[file_].tokens) {
      reader_->expect_end();
      ++file_;
      done_ = 0;
    }
    return raw_;
  }

  std::vector<TokenFile> files_;
  std::int64_t vocabulary_;
  std::int64_t count_ = 0;
  std::size_t file_ = 0;
  std::int64_t done_ = 0;  ///< number of tokens read from files_[file_]
  std::optional<ByteReader> reader_;
  std::vector<std::uint16_t> raw_;
};

}  // namespace

std::unique_ptr<SampleSource> open_tokens(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary) {
  if (files.empty() || vocabulary < 1) throw std::invalid_argument("tokens need a file and the vocabulary's size");
  std::vector<TokenFile> inspected;
  for (const std::filesystem::path& file : files) inspected.push_back(open_token_file(file));
  return std::make_unique<TokenFileSource>(std::move(inspected), vocabulary);
}

}  // namespace lockstep::io
