/// \file
/// Text <-> tokens, with a vocabulary of bytes, characters, words, or parts of words.
///
/// - byte: token = byte, 256 of them.
/// - char: one token per UTF-8 code point.
/// - word: text between spaces (blank, tab, \r, \v, \f); a line's end is the word <eos>, as in tutorials on language
///   models with the Penn Treebank.
/// - bpe: parts of words as in GPT-2, from the files of a tokenizer (byte_pair_encoder.hpp). Any bytes have tokens.
///   Added tokens such as <|endoftext|> replace their text wherever it occurs; if two start at the same byte, the
///   longer one wins.
///
/// Anything outside the vocabulary becomes the unknown token <unk>, if the vocabulary has one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/text/byte_pair_encoder.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

inline constexpr std::string_view kUnknownText = "<unk>";
inline constexpr std::string_view kEndOfLineText = "<eos>";

enum class TokenizerKind { byte, character, word, byte_pair };
/// Accepts "byte", "char", "word", "bpe" as in TokenInfo::kind; nullopt for other names.
std::optional<TokenizerKind> tokenizer_kind_of_name(std::string_view name) noexcept;

/// Cuts text into pieces. The text may arrive in parts: a piece that reaches the end of a part waits for more.
class TextPieces {
 public:
  /// `whole`: texts that are always pieces of their own (bpe).
  explicit TextPieces(TokenizerKind kind, std::vector<std::string> whole = {});
  /// Returns the next piece and removes it from `text`; nullopt if `text` has no whole piece. `last`: no text follows.
  /// The piece is a view of `text`, or kEndOfLineText. Throws FileError without a file name for bytes that are not
  /// UTF-8 (char, word).
  std::optional<std::string_view> next(std::string_view& text, bool last);
  /// Number of bytes consumed: everything before the rest of the text.
  std::uint64_t position() const noexcept { return position_; }

 private:
  std::optional<std::string_view> next_word(std::string_view& text, bool last);
  std::optional<std::string_view> next_byte_pair_word(std::string_view& text, bool last);
  void find_whole(std::string_view text, bool last) noexcept;
  std::string_view take(std::string_view& text, std::size_t bytes) noexcept;

  TokenizerKind kind_;
  std::vector<std::string> whole_;  ///< longest first
  std::string whole_begin_;         ///< first bytes of whole_, each once
  std::size_t free_ = 0;            ///< length of the coming text in which none of whole_ begins
  std::size_t found_ = 0;           ///< length of the member of whole_ after it; 0: unknown
  std::uint64_t position_ = 0;
};

/// Not thread-safe, because the bpe encoder caches words.
class Tokenizer {
 public:
  /// Throws FileError for a vocabulary without texts ("ids": only the maker of the tokens knows their meaning) or with
  /// a text twice, and the errors of BytePairEncoder.
  explicit Tokenizer(TokenInfo info);
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;

  const TokenInfo& info() const noexcept { return info_; }
  TokenizerKind kind() const noexcept { return kind_; }
  /// A TextPieces for this vocabulary.
  TextPieces pieces() const;
  /// Appends the tokens of a piece: exactly one, or with bpe one or more. Returns false if the piece is not in the
  /// vocabulary and there is no unknown token.
  bool append(std::string_view piece, std::vector<std::int32_t>& tokens) const;
  /// Throws FileError without a file name: pieces that append() refuses, bytes that are not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Joins words with blanks, except at the ends of lines. Throws std::invalid_argument for tokens outside the
  /// vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// Printable text of one token: a line's end for <eos>; bytes for bpe, possibly a part of a character.
  std::string_view text_of(std::int32_t token) const;
  /// Text between two tokens: a blank between words, otherwise nothing.
  std::string_view separator(std::int32_t before, std::int32_t after) const;

 private:
  std::int32_t token_of(std::string_view piece) const noexcept;

  TokenInfo info_;
  TokenizerKind kind_;
  std::array<std::int32_t, 256> of_byte_{};  ///< tokens of one-byte pieces; -1: none. bpe: first bytes of added tokens
  std::unordered_map<std::string_view, std::int32_t>
      of_text_;  ///< tokens of longer pieces, or added tokens (bpe); keys are views of info_.texts
  std::unique_ptr<BytePairEncoder> byte_pairs_;  ///< bpe
  std::string bytes_;                            ///< byte: all bytes, for text_of
};

/// A piece of text for a message: the text itself, or its bytes if it cannot be printed.
std::string in_quotes(std::string_view piece);

}  // namespace lockstep::io
