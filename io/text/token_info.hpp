/// \file
/// Description of a corpus of tokens and of its vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// A vocabulary, and the counts of a corpus of its tokens.
struct TokenInfo {
  std::string kind;             ///< "byte", "char", "word", "bpe", or "ids": tokens made elsewhere
  std::int64_t vocabulary = 0;  ///< tokens are in [0, vocabulary)
  /// Text of each token, UTF-8; empty: unknown, or not needed (byte: token = byte). bpe: in letters (byte_letters.hpp),
  /// except added tokens, which are plain text.
  std::vector<std::string> texts = {};
  std::int64_t unknown = -1;   ///< token for words outside the vocabulary; -1: none
  std::int64_t tokens = 0;     ///< number of tokens in the corpus
  double bytes_per_token = 0;  ///< bytes of the corpus's text per token; 0: unknown
  // bpe
  std::vector<std::string> merges = {};  ///< "LEFT RIGHT", texts of tokens, the lowest rank first
  std::vector<std::int64_t> added = {};  ///< tokens that replace their whole text wherever it occurs

  bool operator==(const TokenInfo&) const = default;
};

/// Text bytes that the loss of a token stands for, on average; 0: unknown, as with a token for unknown words, which may
/// stand for any text.
double predicted_bytes(const TokenInfo& info) noexcept;

/// True if both give the same tokens for the same text, and the same text for the same tokens.
bool same_vocabulary(const TokenInfo& a, const TokenInfo& b) noexcept;

/// JSON in one line. The bytes of the text are stored as a whole number (`source_bytes`).
std::string to_json(const TokenInfo& info);
/// Throws FileError without a file name: not JSON, an entry missing or of the wrong kind, contradictory numbers.
TokenInfo token_info_from_json(std::string_view text);

}  // namespace lockstep::io
