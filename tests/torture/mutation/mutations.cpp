#include "torture/mutation/mutations.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <vector>

namespace lockstep::torture {
namespace {

constexpr std::size_t kHeaderBytes = 512;

std::size_t below(std::size_t end, Random& random) { return end == 0 ? 0 : random() % end; }

std::size_t place(const std::string& bytes, Random& random) {
  const bool in_header = random() % 2 == 0;
  return below(in_header ? std::min(bytes.size(), kHeaderBytes) : bytes.size(), random);
}

void flip_bit(std::string& bytes, Random& random) {
  bytes[place(bytes, random)] ^= static_cast<char>(1 << random() % 8);
}

void set_byte(std::string& bytes, Random& random) {
  constexpr std::array<int, 9> kValues = {0, 1, 0x0A, 0x20, 0x7F, 0x80, 0xF6, 0xFE, 0xFF};
  bytes[place(bytes, random)] = static_cast<char>(kValues[below(kValues.size(), random)]);
}

/// A number of 2, 4 or 8 bytes in either order, as headers hold their lengths.
void set_number(std::string& bytes, Random& random) {
  constexpr std::array<std::uint64_t, 12> kValues = {
      0, 1, 0x7F, 0xFF, 0x7FFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, ~0ULL >> 1, ~0ULL};
  const std::size_t size = std::size_t{2} << random() % 3;
  const std::size_t at = place(bytes, random) & ~(random() % 2 == 0 ? size - 1 : 0);
  if (at + size > bytes.size()) return;
  const std::uint64_t value = random() % 3 == 0 ? random() % 100'000 : kValues[below(kValues.size(), random)];
  const bool big_endian = random() % 2 == 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t shift = 8 * (big_endian ? size - 1 - i : i);
    bytes[at + i] = static_cast<char>(value >> shift & 0xFF);
  }
}

/// A number written in digits.
void set_digits(std::string& bytes, Random& random) {
  constexpr std::array<std::string_view, 10> kTexts = {
      "0", "-1", "2147483648", "99999999999999999999", "1e999", "nan", "0.5", "\"", "{", "909295687"};
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < std::min(bytes.size(), std::size_t{1} << 14); ++i) {
    const auto digit = [&](std::size_t at) { return std::isdigit(static_cast<unsigned char>(bytes[at])) != 0; };
    if (digit(i) && (i == 0 || !digit(i - 1))) begins.push_back(i);
  }
  if (begins.empty()) return flip_bit(bytes, random);
  const std::size_t begin = begins[below(begins.size(), random)];
  const auto end = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.end(),
                                [](char c) { return std::isdigit(static_cast<unsigned char>(c)) == 0; });
  bytes.replace(bytes.begin() + static_cast<std::ptrdiff_t>(begin), end, kTexts[below(kTexts.size(), random)]);
}

void truncate(std::string& bytes, Random& random) { bytes.resize(place(bytes, random)); }

void extend(std::string& bytes, Random& random) {
  std::string tail(1 + below(64, random), '\0');
  if (random() % 2 == 0) std::generate(tail.begin(), tail.end(), [&] { return static_cast<char>(random()); });
  bytes += tail;
}

void erase(std::string& bytes, Random& random) { bytes.erase(place(bytes, random), 1 + below(64, random)); }

void fill(std::string& bytes, Random& random) {
  const std::size_t at = place(bytes, random);
  const std::size_t count = std::min(bytes.size() - at, 1 + below(64, random));
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, random() % 2 == 0 ? '\0' : '\xFF');
}

void repeat(std::string& bytes, Random& random) {
  const std::string part = bytes.substr(place(bytes, random), 1 + below(64, random));
  bytes.insert(place(bytes, random), part);
}

void splice(std::string& bytes, std::string_view other, Random& random) {
  if (other.empty()) return flip_bit(bytes, random);
  const std::string_view part = other.substr(below(other.size(), random), 1 + below(128, random));
  bytes.replace(place(bytes, random), random() % 2 == 0 ? part.size() : 0, part);
}

/// A bracket that opens many thousand times, or a part that comes a thousand times: deep and long texts.
void pile_up(std::string& bytes, Random& random) {
  constexpr std::array<std::string_view, 4> kOpening = {"[", "{\"a\":", "(", "<"};
  const std::string_view part = random() % 2 == 0
                                    ? kOpening[below(kOpening.size(), random)]
                                    : std::string_view(bytes).substr(place(bytes, random), 1 + below(64, random));
  std::string pile;
  for (std::size_t count = std::size_t{1} << below(17, random); count > 0; --count) pile += part;
  bytes.insert(place(bytes, random), pile);
}

}  // namespace

std::string mutated(std::string bytes, std::string_view other, Random& random) {
  using Change = void (*)(std::string&, Random&);
  constexpr Change kChanges[] = {flip_bit, flip_bit, flip_bit, set_byte, set_number, set_number, set_digits,
                                 truncate, extend,   erase,    fill,     repeat,     pile_up};
  const std::size_t changes = 1 + below(4, random);
  for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t which = below(std::size(kChanges) + 1, random);
    which < std::size(kChanges) ? kChanges[which](bytes, random) : splice(bytes, other, random);
  }
  return bytes;
}

}  // namespace lockstep::torture
