#include "io/text/byte_pair_encoder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/text/byte_letters.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kWordsKept = std::size_t{1} << 16;  ///< 4 MiB
constexpr std::size_t kLongestShort = 64;                 ///< bytes of the longest word that is merged without a heap

using Merge = BytePairMerges::Merge;

bool is_none(const Merge& merge) noexcept { return merge.rank == BytePairMerges::kNone; }

/// Up to eight bytes as a number, the first one lowest; read in overlapping pieces instead of byte by byte.
std::uint64_t first_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(text[i])} << 8 * i; };
  const auto four = [&](std::size_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, text.data() + i, sizeof value);
    return std::uint64_t{value} << 8 * i;
  };
  const std::size_t size = std::min<std::size_t>(text.size(), 8);
  return size >= 4 ? four(0) | four(size - 4) : byte(0) | byte(size / 2) | byte(size - 1);
}

}  // namespace

BytePairMerges::BytePairMerges(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)), mask_(slots_.size() - 1) {}

bool BytePairMerges::add(std::int32_t left, std::int32_t right, Merge merge) noexcept {
  const std::uint64_t key = key_of(left, right);
  std::size_t at = place_of(key);
  for (; slots_[at].key != kEmpty; at = (at + 1) & mask_) {
    if (slots_[at].key == key) return false;
  }
  slots_[at] = {key, merge};
  return true;
}

BytePairEncoder::BytePairEncoder(const TokenInfo& info) : merges_(info.merges.size()), kept_(kWordsKept) {
  std::vector<bool> added(info.texts.size(), false);
  for (const std::int64_t token : info.added) {
    if (token < 0 || token >= static_cast<std::int64_t>(added.size())) {
      throw FileError(fmt::format("added token {} is none of the vocabulary's {}", token, added.size()));
    }
    added[static_cast<std::size_t>(token)] = true;
  }
  begins_.reserve(info.texts.size() + 1);
  for (std::size_t i = 0; i < info.texts.size(); ++i) {
    begins_.push_back(bytes_.size());
    const auto bytes = added[i] ? std::optional(info.texts[i]) : bytes_of_letters(info.texts[i]);
    if (!bytes || bytes->empty()) {
      throw FileError(fmt::format("token {}, '{}', stands for no bytes", i, readable(info.texts[i])));
    }
    bytes_ += *bytes;
  }
  begins_.push_back(bytes_.size());
  read_merges(info);
}

void BytePairEncoder::read_merges(const TokenInfo& info) {
  std::unordered_map<std::string_view, std::int32_t> of_text;
  of_text.reserve(info.texts.size());
  for (std::size_t i = 0; i < info.texts.size(); ++i) {
    if (!of_text.emplace(info.texts[i], static_cast<std::int32_t>(i)).second) {
      throw FileError(fmt::format("the vocabulary has '{}' twice", readable(info.texts[i])));
    }
  }
  const auto token_of = [&](std::string_view text) -> std::int32_t {
    const auto found = of_text.find(text);
    return found == of_text.end() ? -1 : found->second;
  };
  for (std::size_t byte = 0; byte < of_byte_.size(); ++byte) {
    const char letter = static_cast<char>(byte);
    of_byte_[byte] = token_of(letters_of({&letter, 1}));
    if (of_byte_[byte] < 0) {
      throw FileError(fmt::format("the vocabulary has no token for byte {}, '{}'", byte, letters_of({&letter, 1})));
    }
  }
  for (std::size_t rank = 0; rank < info.merges.size(); ++rank) {
    const std::string_view text = info.merges[rank];
    const auto refuse = [&](std::string_view what) {
      throw FileError(fmt::format("merge {}, '{}', {}", rank + 1, readable(text), what));
    };
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) {
      refuse("is not two texts with a blank between them");
    }
    const std::string_view left = text.substr(0, blank), right = text.substr(blank + 1);
    const std::int32_t a = token_of(left), b = token_of(right);
    const std::int32_t both = token_of(std::string(left) + std::string(right));
    if (a < 0 || b < 0 || both < 0) refuse("names a text that the vocabulary lacks, or makes one");
    if (!merges_.add(a, b, {static_cast<std::int32_t>(rank), both})) refuse("stands twice");
  }
}

std::string_view BytePairEncoder::bytes_of(std::int32_t token) const noexcept {
  const auto at = static_cast<std::size_t>(token);
  return std::string_view(bytes_).substr(begins_[at], begins_[at + 1] - begins_[at]);
}

void BytePairEncoder::append(std::string_view word, std::vector<std::int32_t>& tokens) {
  if (word.size() > kLongestKept) return merge(word, tokens);
  std::array<std::uint64_t, 4> key{};
  std::string_view rest = word;
  for (std::size_t i = 0; !rest.empty(); ++i) {
    key[i] = first_bytes(rest);
    rest.remove_prefix(std::min<std::size_t>(rest.size(), 8));
  }
  key[3] |= std::uint64_t{word.size()} << 56;
  std::uint64_t hash = (key[0] ^ std::rotl(key[1], 23) ^ std::rotl(key[2], 41)) * 0x9E3779B97F4A7C15U;
  hash = (hash ^ hash >> 32 ^ key[3]) * 0xD6E8FEB86659FD93U;
  Kept& kept = kept_[hash >> 40 & (kWordsKept - 1)];
  const bool known =
      ((kept.word[0] ^ key[0]) | (kept.word[1] ^ key[1]) | (kept.word[2] ^ key[2]) | (kept.word[3] ^ key[3])) == 0;
  if (known) {
    for (const std::int32_t token : kept.tokens) {
      if (token < 0) break;
      tokens.push_back(token);
    }
    return;
  }
  const std::size_t begin = tokens.size();
  merge(word, tokens);
  const std::size_t count = tokens.size() - begin;
  if (count > kMaxTokensKept) return;
  kept.word = key;
  kept.tokens.fill(-1);
  std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), count, kept.tokens.begin());
}

void BytePairEncoder::merge(std::string_view word, std::vector<std::int32_t>& tokens) {
  const std::size_t begin = tokens.size();
  for (const char byte : word) tokens.push_back(of_byte_[static_cast<unsigned char>(byte)]);
  word.size() <= kLongestShort ? merge_short(tokens, begin) : merge_long(tokens, begin);
}

void BytePairEncoder::merge_short(std::vector<std::int32_t>& tokens, std::size_t begin) {
  std::int32_t* const symbols = tokens.data() + begin;
  std::size_t count = tokens.size() - begin;
  std::array<Merge, kLongestShort> pairs;  // merge of each symbol with the next one
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (is_none(pairs[best])) break;
    symbols[best] = pairs[best].token;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  tokens.resize(begin + count);
}

void BytePairEncoder::merge_long(std::vector<std::int32_t>& tokens, std::size_t begin) {
  constexpr std::size_t kGone = ~std::size_t{0};
  struct Symbol {
    std::int32_t token;
    std::size_t before, after;  ///< kGone: none
  };
  struct Candidate {
    std::int32_t rank, token;
    std::size_t left;
    std::int32_t left_token, right_token;  ///< out of date if one of them has changed since
    bool operator>(const Candidate& other) const noexcept {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const std::size_t count = tokens.size() - begin;
  std::vector<Symbol> symbols(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::size_t left) {
    if (left == kGone || symbols[left].after == kGone) return;
    const std::int32_t a = symbols[left].token, b = symbols[symbols[left].after].token;
    const Merge merge = merges_.find(a, b);
    if (!is_none(merge)) candidates.push({merge.rank, merge.token, left, a, b});
  };
  for (std::size_t i = 0; i < count; ++i) {
    symbols[i] = {tokens[begin + i], i == 0 ? kGone : i - 1, i + 1 == count ? kGone : i + 1};
  }
  for (std::size_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    if (left.token != best.left_token || left.after == kGone) continue;
    Symbol& right = symbols[left.after];
    if (right.token != best.right_token) continue;
    left.token = best.token;
    left.after = right.after;
    right.token = -1;  // matches no candidate
    if (left.after != kGone) symbols[left.after].before = best.left;
    consider(left.before);
    consider(best.left);
  }
  tokens.resize(begin);
  for (std::size_t i = 0; i != kGone; i = symbols[i].after) tokens.push_back(symbols[i].token);
}

}  // namespace lockstep::io
