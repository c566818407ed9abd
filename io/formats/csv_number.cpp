#include "io/formats/csv_number.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/text/utf8.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::io {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter(char letter) { return std::isalpha(static_cast<unsigned char>(letter)) != 0; }

std::string lowered(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](char letter) { return static_cast<char>(std::tolower(static_cast<unsigned char>(letter))); });
  return small;
}

/// The text without its sign.
std::string_view unsigned_part(std::string_view text) {
  return text.starts_with('+') || text.starts_with('-') ? text.substr(1) : text;
}

std::size_t digits_from(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end;
}

/// Length of a number with groups, "1,234,567": three digits each (or, as in India, two and then three); 0: no groups.
std::size_t grouped_digits(std::string_view text, char separator) {
  std::size_t at = digits_from(text, 0);
  if (at < 1 || at > 3) return 0;
  std::size_t last = 0;
  std::size_t end = 0;
  while (at < text.size() && text[at] == separator) {
    const std::size_t next = digits_from(text, at + 1);
    last = next - at - 1;
    if (last != 3 && (last != 2 || separator != ',')) return 0;
    at = end = next;
  }
  return last == 3 ? end : 0;
}

/// The number with a decimal point and without groups; nullopt: it has other groups or another decimal mark.
std::optional<std::string> rewritten(std::string_view text, const NumberStyle& style) {
  if (style == NumberStyle{}) return std::string(text);
  std::string plain;
  const std::string_view digits = unsigned_part(text);
  plain.append(text.substr(0, text.size() - digits.size()));
  const std::size_t whole = std::min(digits.find(style.decimal), digits.size());
  if (style.thousands != 0 && digits.find(style.thousands) < digits.size()) {
    if (grouped_digits(digits, style.thousands) != digits.substr(0, whole).size()) return std::nullopt;
  }
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const char letter = digits[i];
    if (letter == style.thousands) continue;
    if (letter == style.decimal) {
      plain.push_back('.');
    } else if (letter == '.' || letter == ',') {
      return std::nullopt;
    } else {
      plain.push_back(letter);
    }
  }
  return plain;
}

/// True for a number beyond the range of float32.
bool is_large(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, value);
  return stop == last && (error == std::errc::result_out_of_range || std::isfinite(value));
}

/// True for three numbers with the same mark between them: - / or .
bool numeric_date(std::string_view text) {
  std::array<std::size_t, 3> lengths{};
  std::size_t part = 0;
  char mark = 0;
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const char letter = text[at];
    if (is_digit(letter)) {
      ++lengths[part];
    } else if ((letter == '-' || letter == '/' || letter == '.') && part < 2 && (mark == 0 || mark == letter)) {
      mark = letter;
      ++part;
    } else {
      break;
    }
  }
  if (part != 2 || (at < text.size() && text[at] != ' ' && text[at] != 'T')) return false;
  const bool year_first = lengths[0] == 4 && lengths[1] <= 2 && lengths[2] <= 2;
  const bool year_last = lengths[0] <= 2 && lengths[1] <= 2 && (lengths[2] == 4 || lengths[2] == 2);
  return lengths[0] > 0 && lengths[1] > 0 && lengths[2] > 0 && (year_first || year_last);
}

/// True for 12:30 or 12:30:45.5, perhaps with "am".
bool time_of_day(std::string_view text) {
  const std::size_t hours = digits_from(text, 0);
  if (hours < 1 || hours > 2 || hours >= text.size() || text[hours] != ':') return false;
  const std::size_t minutes = digits_from(text, hours + 1);
  if (minutes != hours + 3) return false;
  const std::string_view rest = text.substr(minutes);
  return rest.empty() || rest[0] == ':' || lowered(csv_trimmed(rest)) == "am" || lowered(csv_trimmed(rest)) == "pm";
}

/// True for 31-May-2024, May 31, 2024, May 2024.
bool date_with_month(std::string_view text) {
  constexpr std::array<std::string_view, 12> kMonths = {"january",   "february", "march",    "april",
                                                        "may",       "june",     "july",     "august",
                                                        "september", "october",  "november", "december"};
  const auto is_month = [&](const std::string& word) {
    return word == "sept" || std::any_of(kMonths.begin(), kMonths.end(), [&](std::string_view name) {
             return word == name || word == name.substr(0, 3);
           });
  };
  bool month = false, number = false;
  for (std::size_t at = 0; at < text.size();) {
    if (is_digit(text[at])) {
      const std::size_t end = digits_from(text, at);
      if (end - at > 4) return false;
      number = true;
      at = end;
    } else if (is_letter(text[at])) {
      std::size_t end = at;
      while (end < text.size() && is_letter(text[end])) ++end;
      if (month || !is_month(lowered(text.substr(at, end - at)))) return false;
      month = true;
      at = end;
    } else if (std::string_view(" -/.,").find(text[at]) != std::string_view::npos) {
      ++at;
    } else {
      return false;
    }
  }
  return month && number;
}

/// Replaces typographic signs and blanks by ASCII.
std::string in_ascii(std::string_view text) {
  struct Sign {
    std::string_view bytes, instead;
  };
  constexpr std::array<Sign, 7> kSigns = {
      Sign{"\xE2\x88\x92", "-"}, Sign{"\xC2\xA0", " "},     Sign{"\xE2\x80\xAF", " "}, Sign{"\xE2\x80\x89", " "},
      Sign{"\xE2\x80\x99", "'"}, Sign{"\xEF\xBC\x8C", ","}, Sign{"\xEF\xBC\x8E", "."}};
  std::string ascii;
  for (std::size_t at = 0; at < text.size();) {
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(),
                                   [&](const Sign& one) { return text.substr(at).starts_with(one.bytes); });
    if (sign == kSigns.end()) {
      ascii.push_back(text[at++]);
    } else {
      ascii.append(sign->instead);
      at += sign->bytes.size();
    }
  }
  return ascii;
}

/// Removes a mark before or after a number; true if there was one.
bool strip(std::string_view& text, std::initializer_list<std::string_view> marks) {
  for (const std::string_view mark : marks) {
    if (text.size() > mark.size() && text.starts_with(mark)) {
      text = csv_trimmed(text.substr(mark.size()));
      return true;
    }
    if (text.size() > mark.size() && text.ends_with(mark)) {
      text = csv_trimmed(text.substr(0, text.size() - mark.size()));
      return true;
    }
  }
  return false;
}

std::string option_of(char separator) {
  return separator == ' ' ? "blank" : separator == '\'' ? "\"'\"" : std::string(1, separator);
}

/// The options that read numbers with commas or groups; "": another text.
std::string other_marks(std::string_view text) {
  const std::string_view digits = unsigned_part(text);
  for (const char separator : {',', '.', ' ', '\'', '_'}) {
    const std::size_t groups = grouped_digits(digits, separator);
    if (groups == 0) continue;
    if (groups == digits.size()) {
      if (separator == ',' && std::count(digits.begin(), digits.end(), ',') == 1) {
        return "--thousands , reads it as one with groups of digits, --decimal , as one with a decimal comma";
      }
      return fmt::format("--thousands {} reads it{}", option_of(separator),
                         separator == '.' ? " together with --decimal ," : "");
    }
    const char decimal = digits[groups];
    if ((decimal == ',' || decimal == '.') && decimal != separator &&
        digits_from(digits, groups + 1) == digits.size()) {
      return fmt::format("--thousands {}{} reads it", option_of(separator), decimal == ',' ? " --decimal ," : "");
    }
  }
  if (std::count(digits.begin(), digits.end(), ',') == 1 && digits.find('.') == std::string_view::npos &&
      csv_number(text, {.decimal = ','})) {
    return "--decimal , reads it";
  }
  return "";
}

/// The separator between several numbers in one cell, such as a blank; 0: none.
char separated_numbers(std::string_view text) {
  for (const char separator : {';', '\t', '|', ' '}) {
    std::size_t numbers = 0;
    bool all = true;
    for (std::size_t at = 0; at < text.size() && all;) {
      const std::size_t end = std::min(text.find(separator, at), text.size());
      const std::string_view one = csv_trimmed(text.substr(at, end - at));
      all = csv_number(one).has_value() || csv_number(one, {.decimal = ','}).has_value() ||
            (one.empty() && separator == ' ');
      numbers += one.empty() ? 0 : 1;
      at = end + 1;
    }
    if (all && numbers > 1) return separator;
  }
  return 0;
}

}  // namespace

std::string_view csv_trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::optional<double> csv_number(std::string_view text, const NumberStyle& style) {
  std::optional<std::string> plain;
  if (style != NumberStyle{}) {
    plain = rewritten(text, style);
    if (!plain) return std::nullopt;
    text = *plain;
  }
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const char* const last = digits.data() + digits.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), last, value);
  if (stop != last) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // from_chars does not tell overflow from underflow
    const bool is_tiny = digits.find("e-") != std::string_view::npos || digits.find("E-") != std::string_view::npos;
    return is_tiny ? std::optional(0.0) : std::nullopt;
  }
  if (error != std::errc() || !(std::abs(value) <= std::numeric_limits<float>::max())) return std::nullopt;
  return value;
}

std::string csv_plain(std::string_view text, const NumberStyle& style) {
  if (style == NumberStyle{} || !csv_number(text, style)) return std::string(text);
  return rewritten(text, style).value_or(std::string(text));
}

bool csv_missing(std::string_view text) {
  // Missing values in pandas, in any case.
  constexpr std::array<std::string_view, 12> kWords = {"na",   "n/a", "nan",  "null", "none",   "?",
                                                       "#n/a", "#na", "<na>", "-nan", "#null!", "#n/a n/a"};
  if (text.empty()) return true;
  if (text.size() > 8) return false;
  return std::find(kWords.begin(), kWords.end(), lowered(text)) != kWords.end();
}

bool csv_date(std::string_view text) { return numeric_date(text) || time_of_day(text) || date_with_month(text); }

std::optional<std::string> odd_number(std::string_view text, const NumberStyle& style) {
  constexpr std::string_view kPlain = "write it as a plain number";
  const std::string ascii = in_ascii(text);
  std::string_view core = csv_trimmed(ascii);
  if (core.find_first_of("0123456789") == std::string_view::npos) {
    const std::string word = lowered(unsigned_part(core));
    if (word == "inf" || word == "infinity" || core.find("\xE2\x88\x9E") != std::string_view::npos) {
      return "it is no finite number: leave such lines out, or write what is meant";
    }
    return std::nullopt;
  }
  std::string_view what;
  if (ascii != text) what = "a number with typographic signs";
  for (const char quote : {'\'', '"', '`'}) {
    if (core.size() > 2 && core.front() == quote && core.back() == quote) {
      core = csv_trimmed(core.substr(1, core.size() - 2));
      what = "a number in quotation marks of its own";
    }
  }
  if (core.size() > 2 && core.front() == '(' && core.back() == ')') {
    core = csv_trimmed(core.substr(1, core.size() - 2));
    what = "a number in parentheses";
  }
  const std::string_view sign = core.starts_with('-') || core.starts_with('+') ? core.substr(0, 1) : std::string_view();
  std::string_view amount = csv_trimmed(core.substr(sign.size()));
  if (strip(amount, {"%", "\xE2\x80\xB0"})) {
    what = "a percentage";
  } else if (strip(amount, {"$", "\xE2\x82\xAC", "\xC2\xA3", "\xC2\xA5", "EUR", "USD", "GBP", "CHF", "JPY"})) {
    what = "an amount of money";
  }
  if (amount.starts_with('-') || amount.starts_with('+')) amount = csv_trimmed(amount.substr(1));
  if (amount.size() > 1 && amount.ends_with('-') && what.empty()) {
    amount = csv_trimmed(amount.substr(0, amount.size() - 1));
    what = "a number with its sign behind it";
  }
  const std::string marks = other_marks(amount);
  if (csv_number(amount, style) || csv_number(amount)) {
    if (what.empty() && style != NumberStyle{}) {
      return fmt::format("it has other marks than --decimal {}{} asks for", style.decimal,
                         style.thousands == 0 ? "" : fmt::format(" --thousands {}", option_of(style.thousands)));
    }
    if (what.empty() && sign.size() + amount.size() == text.size()) return std::nullopt;  // too large for a float
    return fmt::format("it is {}: {}", what.empty() ? "a number with a sign apart" : what, kPlain);
  }
  if (!marks.empty()) {
    return what.empty() ? fmt::format("it is a number in another spelling: {}", marks)
                        : fmt::format("it is {}: {}", what, kPlain);
  }
  if (const char separator = separated_numbers(amount); separator != 0) {
    return separator == ' ' ? std::string("it holds several numbers with blanks between them: write commas there")
                            : fmt::format("it holds several numbers: --separator {} cuts them apart",
                                          separator == '\t' ? "tab" : fmt::format("\"{}\"", separator));
  }
  const std::string small = lowered(amount);
  if (small.starts_with("0x") && small.size() > 2 &&
      std::all_of(small.begin() + 2, small.end(), [](unsigned char c) { return std::isxdigit(c) != 0; })) {
    return fmt::format("it is a hexadecimal number: {}", kPlain);
  }
  if (const std::size_t exponent = small.find('d'); exponent != std::string::npos && exponent > 0) {
    std::string as_c = small;
    as_c[exponent] = 'e';
    if (csv_number(as_c)) return "it is a number with an exponent as Fortran writes it: write e for d";
  }
  return std::nullopt;
}

std::optional<std::string> number_suffix(std::string_view text) {
  constexpr std::size_t kMaxUnit = 8;
  const std::string ascii = in_ascii(text);
  std::size_t end = 0;
  for (std::size_t at = ascii.size(); at > 0 && end == 0; --at) {
    if (csv_number(std::string_view(ascii).substr(0, at))) end = at;
  }
  const std::string_view unit = csv_trimmed(std::string_view(ascii).substr(end));
  if (end == 0 || unit.empty() || unit.size() > kMaxUnit || is_digit(unit.back())) return std::nullopt;
  const bool plausible = is_letter(unit[0]) || static_cast<unsigned char>(unit[0]) >= 0x80;  // °, µ
  return plausible ? std::optional(std::string(unit)) : std::nullopt;
}

std::string csv_shown(std::string_view cell) {
  constexpr std::size_t kMaxShown = 40;
  return visible_line(cell.substr(0, kMaxShown));
}

std::string csv_listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxShown = 20;
  const std::size_t count = std::min(kMaxShown, names.size());
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "),
                     count < names.size() ? fmt::format(" and {} more", names.size() - count) : "");
}

std::string number_refusal(const std::string& file, std::int64_t line, const std::string& column, std::string_view text,
                           const NumberStyle& style) {
  std::string remedy;
  if (csv_missing(text)) {
    remedy =
        ": it is missing. --missing drop leaves such lines out, --missing mean takes the mean of an input's column";
  } else if (csv_date(text)) {
    remedy =
        ": it looks like a date or a time. Make numbers of it (a year, a day of the year, seconds), or leave the "
        "column out with --ignore-columns";
  } else if (const auto odd = odd_number(text, style)) {
    remedy = ": " + *odd;
  } else if (is_large(text)) {
    remedy = " within the range of float32, in which networks compute: scale the column";
  }
  return fmt::format("{}:{}: {} holds \"{}\", which is no finite number{}", file, line, column, csv_shown(text),
                     remedy);
}

}  // namespace lockstep::io
