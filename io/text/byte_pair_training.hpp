/// \file
/// Learns a byte pair vocabulary from the words of a text (Sennrich, Haddow, Birch 2016). It repeatedly replaces the
/// most frequent pair of neighbours within words by one token.
#pragma once

#include <cstdint>
#include <string_view>

#include "io/text/text_counts.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class BytePairTrainer {
 public:
  /// Counts a word of the text (byte_pair_words.hpp).
  void add(std::string_view word);

  /// Returns `vocabulary` tokens, or fewer if no pair occurs twice any more. The 256 bytes come first, in the order of
  /// their letters, then the tokens of the merges, in their order, then <|endoftext|>. The merge of the most frequent
  /// pair is first; among equally frequent pairs, the one whose left token has the smallest bytes, then the right one.
  /// The order of the words does not matter. Throws std::invalid_argument for a vocabulary below 257. Time: O(length of
  /// all different words · log).
  TokenInfo finish(std::int64_t vocabulary) const;

 private:
  TextCounts counts_;
};

}  // namespace lockstep::io
