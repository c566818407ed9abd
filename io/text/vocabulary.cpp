#include "io/text/vocabulary.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::io {

void VocabularyCounter::add(std::string_view piece) { count(piece, counts_); }

TokenInfo VocabularyCounter::finish(TokenizerKind kind, std::int64_t limit) const {
  TokenInfo info;
  if (kind == TokenizerKind::byte) {
    info.kind = "byte";
    info.vocabulary = 256;
    return info;
  }
  info.kind = kind == TokenizerKind::word ? "word" : "char";
  std::vector<std::pair<std::string_view, std::int64_t>> pieces(counts_.begin(), counts_.end());
  std::erase_if(pieces, [](const auto& piece) { return piece.first == kUnknownText; });
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (limit > 0) pieces.resize(std::min(pieces.size(), static_cast<std::size_t>(limit - 1)));
  if (kind == TokenizerKind::character) std::sort(pieces.begin(), pieces.end());  // UTF-8 sorts by code point

  if (limit > 0 || counts_.contains(kUnknownText)) {
    info.unknown = 0;
    info.texts.emplace_back(kUnknownText);
  }
  for (const auto& piece : pieces) info.texts.emplace_back(piece.first);
  info.vocabulary = static_cast<std::int64_t>(info.texts.size());
  return info;
}

}  // namespace lockstep::io
