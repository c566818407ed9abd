#include "io/text/byte_pair_words.hpp"

#include <array>

#include "io/text/character_class.hpp"

namespace lockstep::io {
namespace {

constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
constexpr std::size_t kLongestContraction = 3;

/// Equals character_class() for ASCII; a test compares them.
constexpr std::array<CharacterClass, 128> kAscii = [] {
  std::array<CharacterClass, 128> classes{};
  for (const char letter : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
    classes[static_cast<unsigned char>(letter)] = CharacterClass::letter;
  }
  for (const char digit : std::string_view("0123456789")) {
    classes[static_cast<unsigned char>(digit)] = CharacterClass::number;
  }
  for (const char blank : std::string_view(" \t\n\v\f\r")) {
    classes[static_cast<unsigned char>(blank)] = CharacterClass::space;
  }
  return classes;
}();

/// The end of a run of characters of one class; the rest of a text that is cut off within a character.
struct Run {
  std::size_t end;       ///< end of its last character
  std::size_t last;      ///< its last character, if it has one
  bool is_open = false;  ///< the text ends before another class begins: the run may continue
};

Run run_of(std::string_view text, std::size_t at, CharacterClass kind, bool last) noexcept {
  Run run{.end = at, .last = at};
  while (run.end < text.size()) {
    const auto byte = static_cast<unsigned char>(text[run.end]);
    const Character next = byte < 0x80 ? Character{1, kAscii[byte]} : character_at(text, run.end, last);
    if (next.bytes == 0) break;
    if (next.kind != kind) return run;
    run.last = run.end;
    run.end += next.bytes;
  }
  run.is_open = !last;
  return run;
}

}  // namespace

std::size_t byte_pair_word_bytes(std::string_view text, bool last) noexcept {
  if (text[0] == '\'') {
    for (const std::string_view contraction : kContractions) {
      if (text.starts_with(contraction)) return contraction.size();
    }
    if (text.size() < kLongestContraction && !last) return 0;
  }
  const bool blank = text[0] == ' ';
  if (blank && text.size() == 1) return last ? 1 : 0;
  const Character first = character_at(text, blank ? 1 : 0, last);
  if (first.bytes == 0) return 0;
  const Run run = run_of(text, blank && first.kind != CharacterClass::space ? 1 : 0, first.kind, last);
  if (run.is_open) return 0;
  // The last white space character belongs to the word after it. White space at the end of the text is one word.
  if (first.kind == CharacterClass::space && run.end < text.size() && run.last > 0) return run.last;
  return run.end;
}

}  // namespace lockstep::io
