/// \file
/// What is known of a corpus of tokens, and the vocabulary that made it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// Of a corpus of tokens.
struct TokenInfo {
  std::string kind;             ///< "byte", "char", "word", "bpe", or "ids": tokens made elsewhere
  std::int64_t vocabulary = 0;  ///< tokens are in [0, vocabulary)
  /// Of each token, UTF-8; empty: unknown, or not needed (byte: token = byte). bpe: in letters (byte_letters.hpp), but
  /// of added tokens as it stands.
  std::vector<std::string> texts = {};
  std::int64_t unknown = -1;   ///< the token that stands for words outside the vocabulary; -1: none
  std::int64_t tokens = 0;     ///< of the corpus
  double bytes_per_token = 0;  ///< of the text the corpus came from; 0: unknown
  // bpe
  std::vector<std::string> merges = {};  ///< "LEFT RIGHT", texts of tokens, the lowest rank first
  std::vector<std::int64_t> added = {};  ///< tokens that stand for their text as a whole wherever it occurs

  bool operator==(const TokenInfo&) const = default;
};

/// Both give the same tokens for the same text, and the same text for the same tokens.
bool same_vocabulary(const TokenInfo& a, const TokenInfo& b) noexcept;

/// One line. The bytes of the text are stored as a whole number (`source_bytes`).
std::string to_json(const TokenInfo& info);
/// Throws FileError, without the name of a file: not JSON, an entry missing or of the wrong kind, numbers that
/// contradict each other.
TokenInfo token_info_from_json(std::string_view text);

}  // namespace lockstep::io
