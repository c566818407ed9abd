#include "io/text/byte_pair_training.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <queue>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/text/byte_letters.hpp"

namespace lockstep::io {
namespace {

using Pair = std::uint64_t;  // left token << 32 | right token

Pair pair_of(std::int32_t left, std::int32_t right) noexcept {
  return Pair{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count;
};

class Training {
 public:
  explicit Training(std::vector<std::pair<std::string_view, std::int64_t>> words) {
    std::array<std::int32_t, 256> token_of{};
    for (const std::uint8_t byte : bytes_by_letter()) {
      token_of[byte] = static_cast<std::int32_t>(bytes_.size());
      bytes_.emplace_back(1, static_cast<char>(byte));
      known_.insert(bytes_.back());
    }
    for (const auto& [text, count] : words) {
      Word& word = words_.emplace_back(Word{{}, count});
      for (const char byte : text) word.symbols.push_back(token_of[static_cast<unsigned char>(byte)]);
      count_pairs(words_.size() - 1, 1);
    }
    for (const auto& [pair, count] : counts_) queue_.push(candidate(pair, count));
  }

  /// Finds the left and right token of the next merge, which gets the next number. Returns false if no pair occurs
  /// twice.
  bool next(std::string& left, std::string& right) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto counted = counts_.find(best.pair);
      const std::int64_t count = counted == counts_.end() ? 0 : counted->second;
      if (count < 2) continue;
      if (count != best.count) {  // rarer by now: more frequent pairs were queued when they were found
        queue_.push(candidate(best.pair, count));
        continue;
      }
      left = *best.left;
      right = *best.right;
      // Two merges can give one text ("a" + "bc", "ab" + "c"): only the first makes a token.
      const auto added = known_.insert(left + right);
      if (!added.second) {
        counts_.erase(counted);
        continue;
      }
      bytes_.push_back(left + right);
      merge(best.pair, static_cast<std::int32_t>(bytes_.size()) - 1);
      return true;
    }
    return false;
  }

 private:
  struct Candidate {
    std::int64_t count;
    const std::string *left, *right;
    Pair pair;
    bool operator<(const Candidate& other) const noexcept {
      if (count != other.count) return count < other.count;
      if (const int order = left->compare(*other.left); order != 0) return order > 0;  // compares bytes as unsigned
      return right->compare(*other.right) > 0;
    }
  };

  Candidate candidate(Pair pair, std::int64_t count) const {
    return {count, &bytes_[pair >> 32], &bytes_[pair & 0xFFFFFFFF], pair};
  }

  void count_pairs(std::size_t at, std::int64_t sign) {
    const Word& word = words_[at];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair = pair_of(word.symbols[i], word.symbols[i + 1]);
      counts_[pair] += sign * word.count;
      if (sign < 0) continue;
      std::vector<std::size_t>& places = places_[pair];
      if (places.empty() || places.back() != at) places.push_back(at);
    }
  }

  void merge(Pair pair, std::int32_t token) {
    const auto left = static_cast<std::int32_t>(pair >> 32), right = static_cast<std::int32_t>(pair & 0xFFFFFFFF);
    const std::vector<std::size_t> places = std::move(places_[pair]);
    places_.erase(pair);
    std::unordered_set<Pair> fresh;
    for (const std::size_t at : places) {
      std::vector<std::int32_t>& symbols = words_[at].symbols;
      std::vector<std::int32_t> merged;
      for (std::size_t i = 0; i < symbols.size(); ++i) {
        const bool both = i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right;
        merged.push_back(both ? token : symbols[i]);
        if (both) ++i;
      }
      if (merged.size() == symbols.size()) continue;  // an outdated entry: another merge has taken the pair
      count_pairs(at, -1);
      symbols = std::move(merged);
      count_pairs(at, 1);
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] == token || symbols[i + 1] == token) fresh.insert(pair_of(symbols[i], symbols[i + 1]));
      }
    }
    counts_.erase(pair);
    for (const Pair one : fresh) queue_.push(candidate(one, counts_[one]));
  }

  std::deque<std::string> bytes_;  ///< bytes of each token; elements never move, because candidates point at them
  std::unordered_set<std::string> known_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t> counts_;
  std::unordered_map<Pair, std::vector<std::size_t>> places_;  ///< words that have or had the pair
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void BytePairTrainer::add(std::string_view word) { count(word, counts_); }

TokenInfo BytePairTrainer::finish(std::int64_t vocabulary) const {
  constexpr std::int64_t kMin = 257;  // the bytes and <|endoftext|>
  if (vocabulary < kMin) throw std::invalid_argument(fmt::format("a byte pair vocabulary of {}", vocabulary));
  TokenInfo info{.kind = "bpe"};
  for (const std::uint8_t byte : bytes_by_letter()) {
    const char letter = static_cast<char>(byte);
    info.texts.push_back(letters_of({&letter, 1}));
  }
  Training training({counts_.begin(), counts_.end()});
  std::string left, right;
  while (static_cast<std::int64_t>(info.texts.size()) + 1 < vocabulary && training.next(left, right)) {
    info.merges.push_back(letters_of(left) + " " + letters_of(right));
    info.texts.push_back(letters_of(left + right));
  }
  info.added = {static_cast<std::int64_t>(info.texts.size())};
  info.texts.emplace_back(kEndOfText);
  info.vocabulary = static_cast<std::int64_t>(info.texts.size());
  return info;
}

}  // namespace lockstep::io
