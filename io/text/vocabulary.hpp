/// \file
/// Collects the pieces of a text and makes its vocabulary.
#pragma once

#include <cstdint>
#include <string_view>

#include "io/text/text_counts.hpp"
#include "io/text/token_info.hpp"
#include "io/text/tokenizer.hpp"

namespace lockstep::io {

class VocabularyCounter {
 public:
  void add(std::string_view piece);

  /// With a limit: the limit - 1 most frequent pieces (ties by text) and <unk>. Without one (0): all pieces, and <unk>
  /// only if the text has it as a word. <unk> is token 0; characters follow by code point, words by frequency (ties by
  /// text).
  TokenInfo finish(TokenizerKind kind, std::int64_t limit) const;

 private:
  TextCounts counts_;
};

}  // namespace lockstep::io
