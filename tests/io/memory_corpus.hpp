/// \file
/// Tokens that a test can compute: token i is (7 i + i / 11) mod the vocabulary.
#pragma once

#include <cstring>
#include <functional>
#include <utility>

#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {

inline std::int64_t expected_token(std::int64_t position, std::int64_t vocabulary) {
  return (7 * position + position / 11) % vocabulary;
}

class MemoryCorpus final : public SampleSource {
 public:
  struct Options {
    std::int64_t tokens = 1000;
    std::int64_t vocabulary = 50;
    std::function<std::int64_t(std::int64_t position)> token = {};  ///< default: expected_token
  };

  explicit MemoryCorpus(Options options) : options_(std::move(options)) {}
  std::vector<Field> fields() const override { return {{kTokensName, token_type(options_.vocabulary), {}}}; }
  std::int64_t count() const override { return options_.tokens; }
  std::string description() const override { return "memory"; }
  bool labels_are_classes() const override { return false; }
  std::optional<TokenInfo> token_info() const override {
    return TokenInfo{.kind = "ids", .vocabulary = options_.vocabulary, .texts = {}};
  }
  std::uint64_t source_bytes() const override { return static_cast<std::uint64_t>(3 * done_); }
  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t size = size_of(token_type(options_.vocabulary));
    for (std::int64_t i = 0; i < samples; ++i, ++done_) {
      const std::int64_t token = options_.token ? options_.token(done_) : expected_token(done_, options_.vocabulary);
      std::memcpy(buffers[0].data() + static_cast<std::size_t>(i) * size, &token, size);
    }
  }

 private:
  Options options_;
  std::int64_t done_ = 0;
};

}  // namespace lockstep::io
