#include "io/text/tokenizer.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/text/byte_pair_words.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr std::string_view kBlanksAndLineEnd = " \t\r\v\f\n";

unsigned byte_at(std::string_view text, std::size_t at) noexcept { return static_cast<unsigned char>(text[at]); }

[[noreturn]] void not_utf8(std::uint64_t position) {
  throw FileError(
      fmt::format("byte {} is no UTF-8 text; convert it to UTF-8, or take bytes as tokens (byte)", position));
}

}  // namespace

std::optional<TokenizerKind> tokenizer_kind_of_name(std::string_view name) noexcept {
  if (name == "byte") return TokenizerKind::byte;
  if (name == "char") return TokenizerKind::character;
  if (name == "word") return TokenizerKind::word;
  if (name == "bpe") return TokenizerKind::byte_pair;
  return std::nullopt;
}

TextPieces::TextPieces(TokenizerKind kind, std::vector<std::string> whole) : kind_(kind), whole_(std::move(whole)) {
  std::sort(whole_.begin(), whole_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const std::string& text : whole_) {
    if (whole_begin_.find(text.front()) == std::string::npos) whole_begin_ += text.front();
  }
}

std::string_view TextPieces::take(std::string_view& text, std::size_t bytes) noexcept {
  const std::string_view piece = text.substr(0, bytes);
  text.remove_prefix(bytes);
  position_ += bytes;
  return piece;
}

std::optional<std::string_view> TextPieces::next(std::string_view& text, bool last) {
  if (kind_ == TokenizerKind::word) return next_word(text, last);
  if (kind_ == TokenizerKind::byte_pair) return next_byte_pair_word(text, last);
  if (text.empty()) return std::nullopt;
  if (kind_ == TokenizerKind::byte) return take(text, 1);
  const std::optional<std::size_t> bytes = code_point_bytes(text);
  if (!bytes && !last) return std::nullopt;
  if (!bytes || *bytes == 0) not_utf8(position_);
  return take(text, *bytes);
}

std::optional<std::string_view> TextPieces::next_word(std::string_view& text, bool last) {
  take(text, std::min(text.find_first_not_of(kBlanks), text.size()));
  if (text.empty()) return std::nullopt;
  if (text[0] == '\n') {
    take(text, 1);
    return kEndOfLineText;
  }
  const std::size_t end = text.find_first_of(kBlanksAndLineEnd);
  if (end == std::string_view::npos && !last) return std::nullopt;
  const std::string_view word = text.substr(0, end);
  if (const auto bad = first_not_utf8(word)) not_utf8(position_ + *bad);
  return take(text, word.size());
}

std::optional<std::string_view> TextPieces::next_byte_pair_word(std::string_view& text, bool last) {
  if (text.empty()) return std::nullopt;
  if (free_ == 0 && found_ == 0) find_whole(text, last);
  if (free_ == 0) {
    if (found_ == 0) return std::nullopt;
    return take(text, std::exchange(found_, 0));
  }
  const std::size_t bytes = byte_pair_word_bytes(text.substr(0, free_), last || found_ > 0);
  if (bytes == 0) {
    free_ = 0;  // searched again, in a longer text
    return std::nullopt;
  }
  free_ -= bytes;
  return take(text, bytes);
}

void TextPieces::find_whole(std::string_view text, bool last) noexcept {
  const std::size_t longest = whole_.empty() ? 1 : whole_.front().size();
  // The last bytes may be the beginning of an added token.
  const std::size_t known = last ? text.size() : text.size() - std::min(text.size(), longest - 1);
  for (free_ = 0; free_ < known; ++free_) {
    // A single first letter, such as <, is searched many bytes at a time.
    free_ = std::min(
        whole_begin_.size() == 1 ? text.find(whole_begin_.front(), free_) : text.find_first_of(whole_begin_, free_),
        known);
    const std::string_view rest = text.substr(free_);
    const auto found =
        std::find_if(whole_.begin(), whole_.end(), [&](const std::string& whole) { return rest.starts_with(whole); });
    if (free_ < known && found != whole_.end()) {
      found_ = found->size();
      return;
    }
  }
  free_ = known;
}

Tokenizer::Tokenizer(TokenInfo info) : info_(std::move(info)) {
  const auto kind = tokenizer_kind_of_name(info_.kind);
  if (!kind) throw FileError("the vocabulary has no texts: its tokens were made elsewhere");
  kind_ = *kind;
  of_byte_.fill(-1);
  if (kind_ == TokenizerKind::byte) {
    for (std::size_t i = 0; i < of_byte_.size(); ++i) {
      of_byte_[i] = static_cast<std::int32_t>(i);
      bytes_.push_back(static_cast<char>(i));
    }
    return;
  }
  if (kind_ == TokenizerKind::byte_pair) {
    byte_pairs_ = std::make_unique<BytePairEncoder>(info_);
    for (const std::int64_t token : info_.added) {
      const std::string_view text = info_.texts[static_cast<std::size_t>(token)];
      of_byte_[byte_at(text, 0)] = of_text_[text] = static_cast<std::int32_t>(token);
    }
    return;
  }
  for (std::size_t i = 0; i < info_.texts.size(); ++i) {
    const std::string& text = info_.texts[i];
    const auto token = static_cast<std::int32_t>(i);
    const bool twice = text.size() == 1 ? std::exchange(of_byte_[byte_at(text, 0)], token) != -1
                                        : !of_text_.emplace(text, token).second;
    if (twice) throw FileError(fmt::format("the vocabulary has {} twice", in_quotes(text)));
  }
}

TextPieces Tokenizer::pieces() const {
  std::vector<std::string> whole;
  for (const std::int64_t token : info_.added) whole.push_back(info_.texts[static_cast<std::size_t>(token)]);
  return TextPieces(kind_, std::move(whole));
}

bool Tokenizer::append(std::string_view piece, std::vector<std::int32_t>& tokens) const {
  if (kind_ == TokenizerKind::byte_pair) {
    // A piece that equals an added token's text is that token.
    const auto added = of_byte_[byte_at(piece, 0)] < 0 ? of_text_.end() : of_text_.find(piece);
    if (added != of_text_.end()) {
      tokens.push_back(added->second);
    } else {
      byte_pairs_->append(piece, tokens);
    }
    return true;
  }
  const std::int32_t token = token_of(piece);
  if (token >= 0) tokens.push_back(token);
  return token >= 0;
}

std::int32_t Tokenizer::token_of(std::string_view piece) const noexcept {
  std::int32_t token = -1;
  if (piece.size() == 1) {
    token = of_byte_[byte_at(piece, 0)];
  } else if (const auto found = of_text_.find(piece); found != of_text_.end()) {
    token = found->second;
  }
  return token < 0 ? static_cast<std::int32_t>(info_.unknown) : token;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  TextPieces all = pieces();
  while (const auto piece = all.next(text, true)) {
    if (append(*piece, tokens)) continue;
    throw FileError(fmt::format("{} is not in the vocabulary, which has no <unk>", in_quotes(*piece)));
  }
  return tokens;
}

std::string_view Tokenizer::text_of(std::int32_t token) const {
  if (token < 0 || token >= info_.vocabulary) {
    throw std::invalid_argument(fmt::format("token {} of a vocabulary of {}", token, info_.vocabulary));
  }
  const auto at = static_cast<std::size_t>(token);
  if (kind_ == TokenizerKind::byte) return std::string_view(bytes_).substr(at, 1);
  if (kind_ == TokenizerKind::byte_pair) return byte_pairs_->bytes_of(token);
  if (kind_ == TokenizerKind::word && info_.texts[at] == kEndOfLineText) return "\n";
  return info_.texts[at];
}

std::string_view Tokenizer::separator(std::int32_t before, std::int32_t after) const {
  const bool words = kind_ == TokenizerKind::word && text_of(before) != "\n" && text_of(after) != "\n";
  return words ? " " : "";
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += separator(tokens[i - 1], tokens[i]);
    text += text_of(tokens[i]);
  }
  return text;
}

std::string in_quotes(std::string_view piece) {
  const bool printable = !first_not_utf8(piece) && std::none_of(piece.begin(), piece.end(), [](unsigned char byte) {
    return byte < 0x20 || byte == 0x7F;
  });
  if (printable) return fmt::format("'{}'", piece);
  std::string text;
  for (const unsigned char byte : piece) text += fmt::format("\\x{:02x}", byte);
  return fmt::format("'{}'", text);
}

}  // namespace lockstep::io
