#include "io/text/token_info.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/files/json_text.hpp"
#include "io/text/byte_pair_encoder.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kKinds = {"byte", "char", "word", "bpe", "ids"};

void require(bool holds, const char* what) {
  if (!holds) throw FileError(fmt::format("the vocabulary {}", what));
}

void require_consistent(const TokenInfo& info, std::int64_t source_bytes) {
  require(std::find(kKinds.begin(), kKinds.end(), info.kind) != kKinds.end(), "is none of byte, char, word, bpe, ids");
  require(info.vocabulary >= 1 && info.vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "has an impossible size");
  require(info.kind != "byte" || info.vocabulary == 256, "of bytes does not have 256 tokens");
  require(info.texts.empty() || static_cast<std::int64_t>(info.texts.size()) == info.vocabulary,
          "does not have a text for every token");
  require(!info.texts.empty() || info.kind == "byte" || info.kind == "ids", "has no texts");
  require(info.unknown >= -1 && info.unknown < info.vocabulary, "does not hold its own token for unknown words");
  if (info.kind == "bpe") BytePairEncoder{info};  // checks it while the file's name is known
  require(info.tokens >= 0 && source_bytes >= 0, "has negative counts");
}

}  // namespace

double predicted_bytes(const TokenInfo& info) noexcept { return info.unknown < 0 ? info.bytes_per_token : 0; }

bool same_vocabulary(const TokenInfo& a, const TokenInfo& b) noexcept {
  return a.kind == b.kind && a.vocabulary == b.vocabulary && a.texts == b.texts && a.unknown == b.unknown &&
         a.merges == b.merges && a.added == b.added;
}

std::string to_json(const TokenInfo& info) {
  const auto source_bytes = std::llround(info.bytes_per_token * static_cast<double>(info.tokens));
  json text = {{"kind", info.kind},       {"vocabulary", info.vocabulary}, {"texts", info.texts},
               {"unknown", info.unknown}, {"tokens", info.tokens},         {"source_bytes", source_bytes}};
  if (info.kind == "bpe") {
    text["merges"] = info.merges;
    text["added"] = info.added;
  }
  return to_text(text);
}

TokenInfo token_info_from_json(std::string_view text) {
  TokenInfo info;
  std::int64_t source_bytes = 0;
  try {
    const json parsed = parse_json(text);
    info.kind = text_entry(parsed, "kind");
    info.vocabulary = integer_entry(parsed, "vocabulary");
    info.texts = texts_entry(parsed, "texts");
    info.unknown = integer_entry(parsed, "unknown");
    info.tokens = integer_entry(parsed, "tokens");
    source_bytes = integer_entry(parsed, "source_bytes");
    if (info.kind == "bpe") {
      info.merges = texts_entry(parsed, "merges");
      info.added = integers_entry(parsed, "added");
    }
  } catch (const FileError& error) {
    throw FileError(fmt::format("the vocabulary is damaged: {}", error.what()));
  }
  require_consistent(info, source_bytes);
  if (info.tokens > 0) info.bytes_per_token = static_cast<double>(source_bytes) / static_cast<double>(info.tokens);
  return info;
}

}  // namespace lockstep::io
