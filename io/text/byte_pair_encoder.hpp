/// \file
/// Byte pair encoding (Sennrich, Haddow, Birch 2016; of bytes: Radford et al. 2019): a word begins as its bytes; of all
/// neighbours that a merge names, those of the lowest rank become one token, of equal ones the leftmost, until none is
/// left.
///
/// Texts repeat their words. Words of up to 31 bytes and 8 tokens are kept in a table of fixed size where a new word
/// takes the place of an old one, so that most words cost one look and no memory is taken for a token. Short words are
/// merged by looking for the lowest rank again and again, long ones with a heap: O(n log n), whatever the text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/token_info.hpp"

namespace lockstep::io {

/// What two neighbours become.
class BytePairMerges {
 public:
  struct Merge {
    std::int32_t rank;   ///< lower ones come first; kNone: there is no such merge
    std::int32_t token;  ///< that they become
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  /// For so many merges.
  explicit BytePairMerges(std::size_t merges);
  /// False: the pair has a merge already.
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

  std::vector<Slot> slots_;  ///< a power of two; half of them stay empty
  std::size_t mask_;
};

/// Not for several threads at once: it remembers words.
class BytePairEncoder {
 public:
  /// Of a vocabulary of kind "bpe". Throws FileError, without the name of a file: a byte has no token, a merge names a
  /// token that there is not, or stands twice, a text stands for no bytes.
  explicit BytePairEncoder(const TokenInfo& info);

  /// Adds the tokens of a word (byte_pair_words.hpp; or of any bytes).
  void append(std::string_view word, std::vector<std::int32_t>& tokens);
  /// What a token stands for. `token` is one of the vocabulary.
  std::string_view bytes_of(std::int32_t token) const noexcept;

 private:
  static constexpr std::size_t kLongestKept = 31;
  static constexpr std::size_t kMostTokensKept = 8;
  struct alignas(64) Kept {
    /// The word's bytes, zeros behind it; the last byte: its length; 0: none is kept here.
    std::array<std::uint64_t, (kLongestKept + 1) / 8> word{};
    std::array<std::int32_t, kMostTokensKept> tokens{};  ///< -1 behind the last
  };

  void read_merges(const TokenInfo& info);
  void merge(std::string_view word, std::vector<std::int32_t>& tokens);
  void merge_short(std::vector<std::int32_t>& tokens, std::size_t begin);
  void merge_long(std::vector<std::int32_t>& tokens, std::size_t begin);

  std::array<std::int32_t, 256> of_byte_{};
  BytePairMerges merges_;
  std::string bytes_;                ///< of all tokens
  std::vector<std::size_t> begins_;  ///< of each token in bytes_, and the end
  std::vector<Kept> kept_;
};

}  // namespace lockstep::io
