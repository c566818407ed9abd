// Text files as a corpus, read twice: the first pass counts pieces and finds the vocabulary, the second encodes.
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/text/byte_pair_training.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/utf8.hpp"
#include "io/text/vocabulary.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

/// The pieces of several files in order; the end of a file ends a word.
class TextStream {
 public:
  TextStream(std::vector<std::filesystem::path> files, TextPieces pieces)
      : files_(std::move(files)), fresh_(std::move(pieces)), pieces_(fresh_), buffer_(kBufferBytes, '\0') {
    open();
  }

  /// The next piece; valid until the next call.
  std::optional<std::string_view> next() {
    while (true) {
      try {
        if (const auto piece = pieces_.next(text_, at_end_)) return piece;
      } catch (const FileError& error) {
        throw FileError(fmt::format("{}: {}", files_[file_].string(), error.what()));
      }
      if (!at_end_) {
        refill();
      } else if (file_ + 1 < files_.size()) {
        before_ += pieces_.position();
        ++file_;
        open();
      } else {
        return std::nullopt;
      }
    }
  }
  /// Bytes consumed so far, in all files.
  std::uint64_t bytes() const noexcept { return before_ + pieces_.position(); }
  /// "FILE: at byte N", the end of the piece just read.
  std::string place() const { return fmt::format("{}: at byte {}", files_[file_].string(), pieces_.position()); }

 private:
  void open() {
    reader_.emplace(files_[file_]);
    pieces_ = fresh_;
    text_ = {};
    at_end_ = false;
  }

  void refill() {
    if (!text_.empty()) std::memmove(buffer_.data(), text_.data(), text_.size());
    const std::size_t kept = text_.size();
    if (kept == buffer_.size()) {
      throw FileError(fmt::format("{}: at byte {}: a word of more than {} bytes; is this text?", files_[file_].string(),
                                  pieces_.position(), kept));
    }
    const std::span<char> space = std::span(buffer_).subspan(kept);
    const std::size_t got = reader_->read_some(std::as_writable_bytes(space));
    at_end_ = got == 0;
    text_ = std::string_view(buffer_).substr(0, kept + got);
  }

  std::vector<std::filesystem::path> files_;
  TextPieces fresh_, pieces_;
  std::size_t file_ = 0;
  std::optional<ByteReader> reader_;
  std::string buffer_;
  std::string_view text_;  ///< unread part of the buffer
  bool at_end_ = false;    ///< the current file has ended
  std::uint64_t before_ = 0;
};

class TextSource final : public SampleSource {
 public:
  TextSource(std::vector<std::filesystem::path> files, Tokenizer tokenizer, std::int64_t count)
      : names_(files),
        tokenizer_(std::move(tokenizer)),
        count_(count),
        stream_(std::move(files), tokenizer_.pieces()) {}

  std::vector<Field> fields() const override { return {{kTokensName, token_type(tokenizer_.info().vocabulary), {}}}; }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return describe_files("text", names_); }
  bool labels_are_classes() const override { return false; }
  std::optional<TokenInfo> token_info() const override { return tokenizer_.info(); }
  std::uint64_t source_bytes() const override { return stream_.bytes(); }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t size = size_of(fields()[0].type);
    if (samples < 0 || samples > count_ - done_ || buffers[0].size() != static_cast<std::size_t>(samples) * size) {
      throw std::invalid_argument("more tokens asked for than the text has, or a buffer of the wrong size");
    }
    std::byte* out = buffers[0].data();
    for (std::int64_t i = 0; i < samples; ++i, out += size) {
      if (next_ == tokens_.size()) read_piece();
      std::memcpy(out, &tokens_[next_++], size);  // little-endian: the low bytes come first
    }
    done_ += samples;
    if (done_ == count_) stream_.next();  // counts trailing blanks as part of the text
  }

 private:
  /// Makes the next tokens from the next piece.
  void read_piece() {
    const auto piece = stream_.next();
    if (!piece) throw FileError(fmt::format("{}: has become shorter while it was read", description()));
    tokens_.clear();
    next_ = 0;
    if (tokenizer_.append(*piece, tokens_)) return;
    throw FileError(
        fmt::format("{}: {} is not in the vocabulary, which has no <unk>; make the vocabulary of the training data "
                    "with --vocabulary N, or of all the text",
                    stream_.place(), in_quotes(*piece)));
  }

  std::vector<std::filesystem::path> names_;
  Tokenizer tokenizer_;
  std::int64_t count_;
  TextStream stream_;
  std::vector<std::int32_t> tokens_;  ///< tokens of the last piece
  std::size_t next_ = 0;              ///< index into tokens_
  std::int64_t done_ = 0;
};

}  // namespace

FileType token_type(std::int64_t vocabulary) noexcept {
  if (vocabulary <= 256) return FileType::uint8;
  return vocabulary <= 65536 ? FileType::uint16 : FileType::int32;
}

std::string describe_files(const std::string& format, const std::vector<std::filesystem::path>& files) {
  constexpr std::size_t kMaxNames = 5;
  std::string text = format;
  for (std::size_t i = 0; i < std::min(files.size(), kMaxNames); ++i) {
    const std::filesystem::path name =
        files[i].has_filename() ? files[i].filename() : files[i].parent_path().filename();
    text += fmt::format(" {}", readable(name.string()));
  }
  return files.size() > kMaxNames ? text + fmt::format(" and {} more", files.size() - kMaxNames) : text;
}

std::unique_ptr<SampleSource> open_text(const std::vector<std::filesystem::path>& files, const TextOptions& options) {
  if (files.empty()) throw std::invalid_argument("a corpus needs a file of text");
  const std::string& name = options.from ? options.from->kind : options.tokenizer;
  const auto kind = tokenizer_kind_of_name(name);
  if (!kind) {
    throw FileError(
        fmt::format("a text cannot be encoded with a vocabulary of kind {}; byte, char, word and bpe can", name));
  }
  std::int64_t count = 0;
  if (*kind == TokenizerKind::byte_pair) {
    if (!options.from) throw std::invalid_argument("a text is encoded by bpe with a vocabulary made before");
    Tokenizer tokenizer(*options.from);
    std::vector<std::int32_t> tokens;
    for (TextStream stream(files, tokenizer.pieces()); const auto piece = stream.next(); tokens.clear()) {
      tokenizer.append(*piece, tokens);
      count += static_cast<std::int64_t>(tokens.size());
    }
    return std::make_unique<TextSource>(files, std::move(tokenizer), count);
  }
  const bool needs_counts = !options.from && *kind != TokenizerKind::byte;
  VocabularyCounter counter;
  for (TextStream stream(files, TextPieces(*kind)); const auto piece = stream.next(); ++count) {
    if (needs_counts) counter.add(*piece);
  }
  Tokenizer tokenizer(options.from ? *options.from : counter.finish(*kind, options.vocabulary));
  return std::make_unique<TextSource>(files, std::move(tokenizer), count);
}

TokenInfo learn_byte_pairs(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary) {
  if (files.empty()) throw std::invalid_argument("a vocabulary needs a file of text");
  BytePairTrainer trainer;
  const TextPieces pieces(TokenizerKind::byte_pair, {std::string(kEndOfText)});
  for (TextStream stream(files, pieces); const auto piece = stream.next();) {
    if (*piece != kEndOfText) trainer.add(*piece);
  }
  return trainer.finish(vocabulary);
}

TokenInfo read_vocabulary(const std::filesystem::path& folder) {
  const std::filesystem::path train = folder / "train";
  const bool split = !std::filesystem::exists(folder / kManifestName) && std::filesystem::exists(train / kManifestName);
  const std::filesystem::path& place = split ? train : folder;
  const ShardManifest manifest = read_manifest(place);
  if (!manifest.tokens) throw FileError(fmt::format("{}: holds samples, which have no vocabulary", place.string()));
  return *manifest.tokens;
}

}  // namespace lockstep::io
