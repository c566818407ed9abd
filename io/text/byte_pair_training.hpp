/// \file
/// From the words of a text to a byte pair vocabulary (Sennrich, Haddow, Birch 2016): again and again the two
/// neighbours that occur most often within words become one token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "io/text/token_info.hpp"

namespace lockstep::io {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class BytePairTrainer {
 public:
  /// A word of the text (byte_pair_words.hpp).
  void add(std::string_view word);

  /// The 256 bytes in the order of their letters, then what the merges make in their order, then <|endoftext|>:
  /// `vocabulary` tokens, or fewer where no two neighbours occur twice any more. The merge of the most frequent pair
  /// comes first; of pairs that are as frequent the one whose left token has the smallest bytes, then the right one.
  /// The same words in any order give the same. Throws std::invalid_argument for a vocabulary of less than 257.
  /// O(length of all different words · log) in time.
  TokenInfo finish(std::int64_t vocabulary) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
};

}  // namespace lockstep::io
