// Files of tokens: NumPy's .npy, or flat files of little-endian numbers in the formats of the preparation scripts of
// nanoGPT (no header) and llm.c (a header of 256 int32: magic, version, the number of tokens, zeros).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"
#include "io/formats/array_source.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are read as they lie in the file");

using namespace std::string_view_literals;

constexpr std::size_t kHeaderBytes = 1024;
constexpr std::size_t kProbeBytes = 4096;  ///< first bytes, which tell the format

struct Header {
  std::int32_t magic, version;
  FileType type;
};
/// The headers of llm.c, for GPT-2 and for Llama 3.
constexpr Header kHeaders[] = {{20240520, 1, FileType::uint16}, {20240801, 7, FileType::uint32}};

constexpr std::string_view kNpySignature = "\x93NUMPY";
/// Formats that hold no flat tokens, by their first bytes.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"\x89HDF\r\n\x1a\n", "an HDF5 file among several files, which is read only alone or from a folder"},
    {"PK\x03\x04", "an archive (.npz, .pt, .zip)"},
    {"PAR1", "a Parquet file"},
    {"ARROW1", "an Arrow file"},
    {"MMIDIDX\0"sv, "the index of an .idx/.bin pair, of which the .bin holds the tokens"}};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}", path.string(), what));
}

std::string probe(const std::filesystem::path& path) {
  ByteReader reader(path);
  std::string bytes(kProbeBytes, '\0');
  bytes.resize(reader.read_some(std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

ArrayFile open_token_array(const std::filesystem::path& path) {
  ArrayFile file = open_npy_array(path);
  if (file.type == FileType::float32 || file.type == FileType::float64) {
    refuse(path, fmt::format("holds {}, and tokens are whole numbers", name_of(file.type)));
  }
  if (file.shape.size() > 1) {
    refuse(path, fmt::format("has {} extents, and a corpus is one sequence: save array.reshape(-1) if its rows follow "
                             "each other",
                             file.shape.size()));
  }
  check_shape(file);
  return file;
}

/// Refuses numbers of `type` of which every second one is 0, as if each had twice as many bytes.
void require_width(const std::filesystem::path& path, std::string_view begin, FileType type) {
  constexpr std::size_t kFew = 64;
  const std::size_t size = size_of(type), count = begin.size() / size;
  bool upper_are_zero = true, lower_are_zero = true;
  for (std::size_t i = 0; i < count * size; ++i) {
    (i / size % 2 == 1 ? upper_are_zero : lower_are_zero) &= begin[i] == '\0';
  }
  if (count < kFew || !upper_are_zero || lower_are_zero) return;
  refuse(path, fmt::format("every second {} is 0, as if the file had numbers of {} bytes: save it with "
                           "numpy.save('tokens.npy', array), which keeps the type",
                           name_of(type), 2 * size));
}

ArrayFile open_token_file(const std::filesystem::path& path, std::int64_t vocabulary) {
  const std::string begin = probe(path);
  if (begin.starts_with(kNpySignature)) return open_token_array(path);
  for (const auto& [signature, format] : kOthers) {
    if (!begin.starts_with(signature)) continue;
    refuse(path, fmt::format("is {}: tokens are read from flat files of uint16 or uint32, and from .npy, which "
                             "numpy.save('tokens.npy', array) makes",
                             format));
  }
  const std::uint64_t bytes = std::filesystem::file_size(path);
  constexpr std::int64_t kMaxShort = std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  ArrayFile file{.bytes = ByteReader(path),
                 .type = vocabulary > kMaxShort ? FileType::uint32 : FileType::uint16,
                 .big_endian = false,
                 .shape = {}};
  std::array<std::int32_t, 3> head{};
  if (begin.size() >= kHeaderBytes) std::memcpy(head.data(), begin.data(), sizeof head);
  const auto* const header = std::ranges::find(kHeaders, head[0], &Header::magic);
  if (header != std::end(kHeaders)) {
    file.type = header->type;
    if (head[1] != header->version) {
      refuse(path, fmt::format("its header has version {}; {} ({} tokens) is known", head[1], header->version,
                               name_of(header->type)));
    }
    const std::uint64_t expected = kHeaderBytes + size_of(file.type) * static_cast<std::uint32_t>(head[2]);
    if (bytes != expected) {
      refuse(path,
             fmt::format("should have {} bytes after its header, has {}; copy or make it again", expected, bytes));
    }
    std::array<std::byte, kHeaderBytes> skipped;
    file.bytes.read(skipped);
    file.shape = {static_cast<std::uint32_t>(head[2])};
  } else {
    if (bytes % size_of(file.type) != 0) {
      refuse(path, fmt::format("{} bytes are no whole number of {} tokens; is it cut off?", bytes, name_of(file.type)));
    }
    require_width(path, begin, file.type);
    file.shape = {static_cast<std::int64_t>(bytes / size_of(file.type))};
  }
  if (file.shape[0] == 0) refuse(path, "holds no tokens");
  return file;
}

class TokenFileSource final : public SampleSource {
 public:
  TokenFileSource(std::vector<std::filesystem::path> files, std::int64_t vocabulary)
      : files_(std::move(files)), vocabulary_(vocabulary) {
    for (const std::filesystem::path& file : files_) count_ += open_token_file(file, vocabulary_).shape[0];
  }

  std::vector<Field> fields() const override { return {{kTokensName, token_type(vocabulary_), {}}}; }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return describe_files("tokens", files_); }
  bool labels_are_classes() const override { return false; }
  std::optional<TokenInfo> token_info() const override {
    return TokenInfo{.kind = "ids", .vocabulary = vocabulary_, .texts = {}};
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t size = size_of(token_type(vocabulary_));
    if (samples < 0 || buffers[0].size() != static_cast<std::size_t>(samples) * size) {
      throw std::invalid_argument("the buffer of tokens has the wrong size");
    }
    std::span<std::byte> out = buffers[0];
    while (!out.empty()) {
      const std::int64_t read = read_piece(static_cast<std::int64_t>(out.size() / size), out.data());
      out = out.subspan(static_cast<std::size_t>(read) * size);
    }
  }

 private:
  /// Reads at most `most` tokens, up to the end of the file. Returns their number.
  std::int64_t read_piece(std::int64_t most, std::byte* out) {
    if (!file_) {
      if (next_ == files_.size()) throw std::invalid_argument("more tokens asked for than the files have");
      file_.emplace(open_token_file(files_[next_], vocabulary_));
    }
    const std::int64_t count = std::min({most, file_->shape[0] - done_, std::int64_t{1} << 16});
    raw_.resize(static_cast<std::size_t>(count) * size_of(file_->type));
    read_rows(*file_, raw_);
    const std::size_t size = size_of(token_type(vocabulary_));
    with_elements(file_->type, raw_, [&](auto tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i, out += size) {
        // Unsigned 64-bit tokens beyond the signed range turn negative, which is out of range, too.
        const auto token = static_cast<std::int64_t>(tokens[i]);
        if (token < 0 || token >= vocabulary_) {
          refuse(files_[next_],
                 fmt::format("token {} is {} (as {}), outside the vocabulary of {}; --vocabulary says how large it is",
                             done_ + static_cast<std::int64_t>(i), tokens[i], name_of(file_->type), vocabulary_));
        }
        const auto wide = static_cast<std::uint32_t>(token);
        std::memcpy(out, &wide, size);
      }
    });
    done_ += count;
    if (done_ == file_->shape[0]) {
      file_->bytes.expect_end();
      file_.reset();
      ++next_;
      done_ = 0;
    }
    return count;
  }

  std::vector<std::filesystem::path> files_;
  std::int64_t vocabulary_;
  std::int64_t count_ = 0;
  std::size_t next_ = 0;           ///< index of the file being read, or of the next one
  std::optional<ArrayFile> file_;  ///< the file being read
  std::int64_t done_ = 0;          ///< number of tokens read from it
  std::vector<std::byte> raw_;
};

}  // namespace

std::unique_ptr<SampleSource> open_tokens(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary) {
  if (files.empty() || vocabulary < 1) throw std::invalid_argument("tokens need a file and the vocabulary's size");
  return std::make_unique<TokenFileSource>(files, vocabulary);
}

}  // namespace lockstep::io
