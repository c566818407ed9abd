#include "io/datasets/token_dataset.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "io/datasets/shard_set.hpp"
#include "io/files/checksum.hpp"
#include "io/files/element_cast.hpp"
#include "io/shards/counter_random.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {
namespace {

/// Number of tokens read, converted and checked at once, on the stack: a window of this size takes one read.
constexpr std::int64_t kTokensAtOnce = 2048;

std::shared_ptr<ShardSet> open_corpus(const TokenDatasetOptions& options, std::optional<ShardManifest>& manifest) {
  if (!is_packed(options.path)) return std::make_shared<ShardSet>(options.path, options.x, "", options.deadline);
  if (options.shared) {
    manifest = options.shared->manifest();
  } else {
    const IoDeadline::Operation reading(options.deadline, IoDeadline::Kind::reading, options.path);
    manifest = read_manifest(options.path);
  }
  if (!manifest->tokens) {
    throw FileError(
        fmt::format("{}: holds samples, not a corpus of tokens; `lockstep pack --format text` or tokens "
                    "makes one",
                    options.path.string()));
  }
  if (options.shared) return options.shared->set();
  return std::make_shared<ShardSet>(options.path, *manifest, options.deadline);
}

/// Position of the first token outside [0, vocabulary).
template <class Element>
std::optional<std::size_t> first_outside(std::span<const Element> tokens, std::int64_t vocabulary) {
  // Unsigned 64-bit tokens beyond the signed range turn negative, which is out of range, too.
  std::uint64_t outside = 0;
  for (const Element token : tokens) {
    outside |= static_cast<std::uint64_t>(static_cast<std::uint64_t>(static_cast<std::int64_t>(token)) >=
                                          static_cast<std::uint64_t>(vocabulary));
  }
  if (outside == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    const auto token = static_cast<std::int64_t>(tokens[i]);
    if (token < 0 || token >= vocabulary) return i;
  }
}

}  // namespace

struct TokenDataset::Files {
  std::optional<ShardManifest> manifest;
  std::shared_ptr<ShardSet> owned;
  ShardSet& set;
  DatasetInfo info;
  std::int64_t context;
  std::uint64_t seed;
  bool shifts;
  FileType type;  ///< type of the stored tokens

  explicit Files(const TokenDatasetOptions& options)
      : owned(open_corpus(options, manifest)),
        set(*owned),
        context(options.context),
        seed(options.seed),
        shifts(options.shift),
        type(stored().type) {
    if (context < 1) throw std::invalid_argument(fmt::format("windows of {} tokens", context));
    check_kind();
    if (manifest) {
      info.tokens = manifest->tokens;
      info.source = manifest->source;
    } else {
      info.tokens = TokenInfo{.kind = "ids", .vocabulary = largest_token() + 1, .texts = {}, .tokens = set.rows()};
      info.source = options.path.filename().string();
    }
    const std::int64_t tokens = set.rows();
    if (tokens / 2 < context) {
      throw FileError(fmt::format("{}: has {} tokens; windows of {} need {} at least: choose a smaller context",
                                  options.path.string(), tokens, context, 2 * context));
    }
    info.samples = (tokens - context) / context;
    info.x = {"x", FileType::int32, {context}};
    info.y = {"y", FileType::int32, {context}};
    info.labels_are_classes = true;
    info.classes = info.tokens->vocabulary;
    info.value_max = static_cast<double>(info.classes - 1);
  }

  const Field& stored() const { return manifest ? manifest->fields[0] : set.file(0).fields()[0].field; }

  void check_kind() const {
    if (!stored().sample_shape.empty() || type == FileType::float32 || type == FileType::float64) {
      throw FileError(fmt::format("{}: {} is no corpus of tokens, which is one sequence of integers",
                                  set.path(0).string(), set.file(0).fields()[0].dataset));
    }
  }

  /// The largest token of files without a manifest, which are read once.
  std::int64_t largest_token() const {
    std::int64_t largest = 0;
    for (std::size_t shard = 0; shard < set.size(); ++shard) {
      set.stream(shard, 0, [&](std::int64_t first, std::span<const std::byte> block) {
        with_elements(type, block, [&](auto tokens) {
          require_in_vocabulary(shard, first, tokens, std::numeric_limits<std::int32_t>::max());
          for (const auto token : tokens) largest = std::max(largest, static_cast<std::int64_t>(token));
          if (plausible_classes(largest + 1, set.rows())) return;
          throw FileError(
              fmt::format("{}: holds token {}, which {} tokens do not explain: it is damaged, or no corpus of "
                          "tokens",
                          set.path(shard).string(), largest, set.rows()));
        });
      });
    }
    return largest;
  }

  template <class Element>
  void require_in_vocabulary(std::size_t shard, std::int64_t first, std::span<const Element> tokens,
                             std::int64_t vocabulary) const {
    const auto bad = first_outside(tokens, vocabulary);
    if (!bad) return;
    throw FileError(fmt::format("{}: token {} is {}, outside the vocabulary of {}; pack it again",
                                set.path(shard).string(), first + static_cast<std::int64_t>(*bad), tokens[*bad],
                                vocabulary));
  }

  std::int64_t shift(std::int64_t epoch) const noexcept {
    if (epoch == kNoEpoch || !shifts) return 0;
    const RandomBlock words = random_block(seed, RandomPurpose::window_shift, static_cast<std::uint64_t>(epoch), 0);
    __extension__ using Wide = unsigned __int128;
    const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
    return static_cast<std::int64_t>((Wide{bits} * static_cast<std::uint64_t>(context)) >> 64);
  }

  /// Reads tokens [first, first + context) to x, and [first + 1, first + context + 1) to y.
  void read_window(std::int64_t first, std::byte* x, std::byte* y) const {
    std::array<std::int32_t, kTokensAtOnce> values;
    for (std::int64_t done = 0; done <= context;) {
      const std::int64_t count = read_piece(first + done, context + 1 - done, values);
      const std::int64_t of_x = std::min(count, context - done);
      std::memcpy(x + done * 4, values.data(), static_cast<std::size_t>(of_x) * 4);
      const std::int64_t dropped = done == 0 ? 1 : 0;  // the window's first token is not a target
      std::memcpy(y + (done - 1 + dropped) * 4, values.data() + dropped, static_cast<std::size_t>(count - dropped) * 4);
      done += count;
    }
  }

  /// Reads at most `most` tokens from `first` on, up to the end of their shard. Returns their number.
  std::int64_t read_piece(std::int64_t first, std::int64_t most, std::span<std::int32_t, kTokensAtOnce> out) const {
    alignas(8) std::array<std::byte, kTokensAtOnce * 8> raw;
    const std::size_t shard = set.shard_of(first);
    const ShardInfo& file = set.shards()[shard];
    const std::int64_t within = first - file.first;
    const std::int64_t count = std::min({most, kTokensAtOnce, file.count - within});
    const auto bytes = std::span(raw).first(static_cast<std::size_t>(count) * size_of(type));
    set.read(shard, 0, within, count, bytes);
    with_elements(type, bytes, [&](auto tokens) {
      require_in_vocabulary(shard, within, tokens, info.classes);
      for (std::size_t i = 0; i < tokens.size(); ++i) out[i] = static_cast<std::int32_t>(tokens[i]);
    });
    return count;
  }
};

TokenDataset::TokenDataset(const TokenDatasetOptions& options) : files_(std::make_unique<Files>(options)) {}
TokenDataset::~TokenDataset() = default;

const DatasetInfo& TokenDataset::info() const noexcept { return files_->info; }
const std::vector<ShardInfo>& TokenDataset::shards() const noexcept { return files_->set.shards(); }
const std::vector<std::string>& TokenDataset::warnings() const noexcept { return files_->set.warnings(); }

std::string TokenDataset::fingerprint() const {
  const TokenInfo& tokens = *info().tokens;
  const std::string head = fmt::format("{} tokens {}, vocabulary {} {}, windows of {}", tokens.tokens,
                                       name_of(files_->type), tokens.kind, tokens.vocabulary, files_->context);
  const std::string all = fmt::format("{}\n{}\n{}", head, to_json(tokens), files_->set.identity());
  return fmt::format("{}, {}", head, to_hex(checksum(std::as_bytes(std::span(all)))));
}

std::size_t TokenDataset::x_bytes() const noexcept { return static_cast<std::size_t>(files_->context) * 4; }
std::size_t TokenDataset::y_bytes() const noexcept { return static_cast<std::size_t>(files_->context) * 4; }

void TokenDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                        std::span<std::byte> y) const {
  if (x.size() != samples.size() * x_bytes() || y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffers of TokenDataset::read have the wrong size");
  }
  const std::int64_t shift = files_->shift(epoch);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] < 0 || samples[i] >= info().samples) {
      throw std::invalid_argument(fmt::format("there is no window {}: the corpus has {}", samples[i], info().samples));
    }
    files_->read_window(samples[i] * files_->context + shift, x.data() + i * x_bytes(), y.data() + i * y_bytes());
  }
}

std::vector<std::int64_t> TokenDataset::shard_counts() const { return {info().samples}; }
std::size_t TokenDataset::stored_bytes() const noexcept {
  return static_cast<std::size_t>(files_->context) * size_of(files_->type);
}
std::size_t TokenDataset::cache_bytes() const noexcept { return files_->set.cache_bytes(); }

std::int64_t TokenDataset::block_multiple() const noexcept {
  return (files_->set.block_multiple() + files_->context - 1) / files_->context;
}
void TokenDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t) const noexcept {
  constexpr std::size_t kTokensField[] = {0};
  files_->set.will_need(kTokensField, first * files_->context,
                        (count + 1) * files_->context);  // the epoch's shift adds one window
}

std::uint64_t TokenDataset::verify(int part, int parts) const {
  return files_->set.verify(
      part, parts, [this](std::size_t shard, std::size_t, std::int64_t first, std::span<const std::byte> block) {
        with_elements(files_->type, block,
                      [&](auto tokens) { files_->require_in_vocabulary(shard, first, tokens, info().classes); });
      });
}

void TokenDataset::check_unchanged(int part, int parts) { files_->set.check_unchanged(part, parts); }

bool holds_tokens(const std::filesystem::path& path) { return is_packed(path) && read_manifest(path).tokens; }

}  // namespace lockstep::io
