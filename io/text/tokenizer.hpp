/// \file
/// Text <-> tokens, by a vocabulary of bytes, characters, words, or parts of words.
///
/// - byte: token = byte, 256 of them.
/// - char: one UTF-8 code point each.
/// - word: what stands between spaces (blank, tab, \r, \v, \f); a line's end is the word <eos>. So do the tutorials
///   on language models that use the Penn Treebank.
/// - bpe: parts of words as GPT-2 makes them, from files of a tokenizer (byte_pair_encoder.hpp). Any bytes have tokens.
///   Added tokens such as <|endoftext|> stand for their text wherever it occurs; of two that begin there, the longer
///   one.
///
/// What is not in the vocabulary becomes the unknown token <unk>, where the vocabulary has one.
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
/// "byte", "char", "word", "bpe" as in TokenInfo::kind; nullopt for other names.
std::optional<TokenizerKind> tokenizer_kind_of_name(std::string_view name) noexcept;

/// Cuts text into pieces, which may come in parts: a piece that reaches the end of a part waits for more.
class TextPieces {
 public:
  /// `whole`: texts that are pieces wherever they stand (bpe).
  explicit TextPieces(TokenizerKind kind, std::vector<std::string> whole = {});
  /// The next piece and the text behind it; nullopt: there is none (what remains in `text` is not a whole one). `last`:
  /// nothing will follow. The piece is a view of `text`, or kEndOfLineText. Throws FileError, without the name of a
  /// file, for bytes that are no UTF-8 (char, word).
  std::optional<std::string_view> next(std::string_view& text, bool last);
  /// Bytes of text that were passed over: all before what remains.
  std::uint64_t position() const noexcept { return position_; }

 private:
  std::optional<std::string_view> next_word(std::string_view& text, bool last);
  std::optional<std::string_view> next_byte_pair_word(std::string_view& text, bool last);
  void find_whole(std::string_view text, bool last) noexcept;
  std::string_view take(std::string_view& text, std::size_t bytes) noexcept;

  TokenizerKind kind_;
  std::vector<std::string> whole_;  ///< the longest first
  std::string whole_begin_;         ///< their first bytes, each once
  std::size_t free_ = 0;            ///< bytes to come in which none of them begins
  std::size_t found_ = 0;           ///< bytes of the one behind them; 0: none is known
  std::uint64_t position_ = 0;
};

/// Not for several threads at once: that of bpe remembers words.
class Tokenizer {
 public:
  /// Throws FileError for a vocabulary without texts ("ids": whoever made the tokens knows what they mean), or with the
  /// same text twice, and what BytePairEncoder throws.
  explicit Tokenizer(TokenInfo info);
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;

  const TokenInfo& info() const noexcept { return info_; }
  TokenizerKind kind() const noexcept { return kind_; }
  /// Pieces of a text that the vocabulary is for.
  TextPieces pieces() const;
  /// Adds the tokens of a piece: one, of bpe one or more. False: it is not in the vocabulary, which has no unknown
  /// token.
  bool append(std::string_view piece, std::vector<std::int32_t>& tokens) const;
  /// Throws FileError, without the name of a file: what append() does not know, no UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Words are separated by blanks, except at the ends of lines. Throws std::invalid_argument for tokens outside the
  /// vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// One token's text as it is printed: of <eos> a line's end; of bpe bytes, which may be a part of a character.
  std::string_view text_of(std::int32_t token) const;
  /// What stands between two tokens' texts: a blank between words, otherwise nothing.
  std::string_view separator(std::int32_t before, std::int32_t after) const;

 private:
  std::int32_t token_of(std::string_view piece) const noexcept;

  TokenInfo info_;
  TokenizerKind kind_;
  std::array<std::int32_t, 256> of_byte_{};  ///< of pieces of one byte; -1: none. bpe: added ones begin with it
  std::unordered_map<std::string_view, std::int32_t>
      of_text_;                                  ///< of longer ones, bpe: added ones; views of info_.texts
  std::unique_ptr<BytePairEncoder> byte_pairs_;  ///< bpe
  std::string bytes_;                            ///< byte: all of them, for text_of
};

/// What stands in a message for a piece of text: itself, or its bytes where it cannot be printed.
std::string in_quotes(std::string_view piece);

}  // namespace lockstep::io
