#include "io/files/plural.hpp"

#include <fmt/format.h>

namespace lockstep::io {

std::string plural_unless_one(std::int64_t count, std::string_view noun) {
  constexpr std::string_view kVowels = "aeiou";
  std::string word(noun);
  if (count == 1 || word.empty()) return word;
  for (const std::string_view hissing : {"s", "x", "z", "ch", "sh"}) {
    if (noun.ends_with(hissing)) return word + "es";
  }
  if (noun.size() > 1 && noun.back() == 'y' && kVowels.find(noun[noun.size() - 2]) == std::string_view::npos) {
    word.back() = 'i';
    return word + "es";
  }
  return word + "s";
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}", count, plural_unless_one(count, noun));
}

}  // namespace lockstep::io
