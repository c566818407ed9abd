#include "io/datasets/hdf5_token_source.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "io/datasets/shard_set.hpp"
#include "io/files/element_cast.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {
namespace {

class Hdf5TokenSource final : public SampleSource {
 public:
  Hdf5TokenSource(const std::filesystem::path& path, const std::string& dataset, std::int64_t vocabulary)
      : path_(path), set_(path, dataset, ""), vocabulary_(vocabulary) {
    const StoredField& stored = set_.file(0).fields()[0];
    type_ = stored.field.type;
    if (!stored.field.sample_shape.empty() || type_ == FileType::float32 || type_ == FileType::float64) {
      throw FileError(fmt::format("{}: {} is no corpus of tokens, which is one sequence of integers: --x-name names it",
                                  set_.path(0).string(), stored.dataset));
    }
  }

  std::vector<Field> fields() const override { return {{kTokensName, token_type(vocabulary_), {}}}; }
  std::int64_t count() const override { return set_.rows(); }
  std::string description() const override { return describe_files("tokens", {path_}); }
  bool labels_are_classes() const override { return false; }
  std::vector<std::string> remarks() const override { return set_.warnings(); }
  std::optional<TokenInfo> token_info() const override {
    return TokenInfo{.kind = "ids", .vocabulary = vocabulary_, .texts = {}};
  }
  void skip(std::int64_t samples) override { done_ += samples; }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t size = size_of(token_type(vocabulary_));
    if (samples < 0 || done_ + samples > count() || buffers[0].size() != static_cast<std::size_t>(samples) * size) {
      throw std::invalid_argument("more tokens asked for than the files have, or a buffer of the wrong size");
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
    const std::size_t shard = set_.shard_of(done_), size = size_of(token_type(vocabulary_));
    const ShardInfo& file = set_.shards()[shard];
    const std::int64_t within = done_ - file.first;
    const std::int64_t count = std::min({most, file.count - within, std::int64_t{1} << 16});
    raw_.resize(static_cast<std::size_t>(count) * size_of(type_));
    set_.read(shard, 0, within, count, raw_);
    with_elements(type_, raw_, [&](auto tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i, out += size) {
        // Unsigned 64-bit tokens beyond the signed range turn negative, which is out of range, too.
        const auto token = static_cast<std::int64_t>(tokens[i]);
        if (token < 0 || token >= vocabulary_) {
          throw FileError(
              fmt::format("{}: token {} is {}, outside the vocabulary of {}; --vocabulary says how large it is",
                          set_.path(shard).string(), within + static_cast<std::int64_t>(i), tokens[i], vocabulary_));
        }
        const auto wide = static_cast<std::uint32_t>(token);
        std::memcpy(out, &wide, size);
      }
    });
    done_ += count;
    return count;
  }

  std::filesystem::path path_;
  ShardSet set_;
  std::int64_t vocabulary_;
  FileType type_ = FileType::other;
  std::int64_t done_ = 0;  ///< number of tokens read or skipped
  std::vector<std::byte> raw_;
};

}  // namespace

std::unique_ptr<SampleSource> open_hdf5_tokens(const std::filesystem::path& path, const std::string& dataset,
                                               std::int64_t vocabulary) {
  return std::make_unique<Hdf5TokenSource>(path, dataset, vocabulary);
}

}  // namespace lockstep::io
