/// \file
/// Byte pair encoding (Sennrich, Haddow, Birch 2016; of bytes: Radford et al. 2019). A word starts as its bytes. The
/// pair of neighbours whose merge has the lowest rank becomes one token (the leftmost first), until no merge applies.
///
/// Texts repeat their words. A table of fixed size caches words of up to 31 bytes and 8 tokens; a new word replaces an
/// old one. So most words cost one look-up, and tokens cost no allocation. Short words are scanned for the lowest rank
/// after each merge. Long words use a heap: O(n log n) for any text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/token_info.hpp"

namespace lockstep::io {

/// Maps two neighbours to their merge.
class BytePairMerges {
 public:
  struct Merge {
    std::int32_t rank;   ///< lower ranks come first; kNone: no merge
    std::int32_t token;  ///< token of the merged pair
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  /// Reserves memory for this number of merges.
  explicit BytePairMerges(std::size_t merges);
  /// Returns false if the pair has a merge already.
  bool add(std::int32_t left, std::int32_t right, Merge merge) noexcept;
  Merge find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = place_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.merge;
      if (slot.key == kEmpty) return {kNone, -1};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge{kNone, -1};
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place_of(std::uint64_t key) const noexcept {
    return static_cast<std::size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15U >> 20) & mask_;
  }

  std::vector<Slot> slots_;  ///< the size is a power of two; half of the slots stay empty
  std::size_t mask_;
};

/// Not thread-safe, because it caches words.
class BytePairEncoder {
 public:
  /// Needs a vocabulary of kind "bpe". Throws FileError without a file name: a byte has no token, a merge names an
  /// unknown token or occurs twice, a text stands for no bytes.
  explicit BytePairEncoder(const TokenInfo& info);

  /// Appends the tokens of a word (byte_pair_words.hpp; any bytes are allowed).
  void append(std::string_view word, std::vector<std::int32_t>& tokens);
  /// The bytes of a token. `token` is one of the vocabulary.
  std::string_view bytes_of(std::int32_t token) const noexcept;

 private:
  static constexpr std::size_t kLongestKept = 31;
  static constexpr std::size_t kMaxTokensKept = 8;
  struct alignas(64) Kept {
    /// The word's bytes, then zeros; the last byte is the length; length 0: an empty entry.
    std::array<std::uint64_t, (kLongestKept + 1) / 8> word{};
    std::array<std::int32_t, kMaxTokensKept> tokens{};  ///< -1 after the last token
  };

  void read_merges(const TokenInfo& info);
  void merge(std::string_view word, std::vector<std::int32_t>& tokens);
  void merge_short(std::vector<std::int32_t>& tokens, std::size_t begin);
  void merge_long(std::vector<std::int32_t>& tokens, std::size_t begin);

  std::array<std::int32_t, 256> of_byte_{};
  BytePairMerges merges_;
  std::string bytes_;                ///< bytes of all tokens
  std::vector<std::size_t> begins_;  ///< start of each token in bytes_, and the end
  std::vector<Kept> kept_;
};

}  // namespace lockstep::io
