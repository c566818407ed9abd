#include "io/formats/csv_column.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// More different texts than this are names or sentences, no categories.
constexpr std::size_t kMostCategories = 1000;
constexpr std::size_t kCellShown = 40;

/// A number, but beyond the range of float32.
bool is_large(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, value);
  return stop == last && (error == std::errc::result_out_of_range || std::isfinite(value));
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

}  // namespace

std::string_view csv_trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::optional<double> csv_number(std::string_view text) {
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const char* const last = digits.data() + digits.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), last, value);
  if (stop != last) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // from_chars does not say on which side
    const bool is_tiny = digits.find("e-") != std::string_view::npos || digits.find("E-") != std::string_view::npos;
    return is_tiny ? std::optional(0.0) : std::nullopt;
  }
  if (error != std::errc() || !(std::abs(value) <= std::numeric_limits<float>::max())) return std::nullopt;
  return value;
}

bool csv_missing(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords = {"na", "n/a", "nan", "null", "none", "?"};
  if (text.empty()) return true;
  if (text.size() > 4) return false;
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](char letter) { return static_cast<char>(std::tolower(static_cast<unsigned char>(letter))); });
  return std::find(kWords.begin(), kWords.end(), small) != kWords.end();
}

bool csv_date(std::string_view text) {
  // Three numbers with the same mark between them: - / or .
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

void refuse_number(const std::string& file, std::int64_t line, const std::string& column, std::string_view text) {
  std::string remedy;
  if (csv_missing(text)) {
    remedy =
        ": it is missing. --missing drop leaves such lines out, --missing mean takes the mean of an input's column";
  } else if (csv_date(text)) {
    remedy =
        ": it looks like a date. Make numbers of it (a year, a day of the year, seconds), or leave the column out "
        "with --ignore-columns";
  } else if (is_large(text)) {
    remedy = " within the range of float32, in which networks compute: scale the column";
  }
  throw FileError(fmt::format("{}:{}: {} holds \"{}\", which is no finite number{}", file, line, column,
                              readable(text.substr(0, kCellShown)), remedy));
}

void CsvColumn::add(std::string_view cell, std::int64_t line) {
  if (const std::optional<double> number = csv_number(cell)) {
    ++numbers_;
    sum_ += *number;
    const double from_centre = *number - centre_;
    centre_ += from_centre / static_cast<double>(numbers_);
    squares_ += from_centre * (*number - centre_);
    rounding_ = std::max(rounding_, std::abs(*number - static_cast<double>(static_cast<float>(*number))));
    return;
  }
  std::optional<Seen>& first = csv_missing(cell) ? first_missing_ : first_text_;
  if (!first) first = Seen{.cell = std::string(cell), .line = line};
  if (csv_missing(cell)) return;
  ++texts_;
  if (numbers_ > 0 || categories_.size() > kMostCategories) return;
  const std::string category(cell);
  if (place_.emplace(category, categories_.size()).second) categories_.push_back(category);
}

bool CsvColumn::needs_double() const noexcept {
  constexpr double kMatters = 1e-6;
  return numbers_ > 0 && rounding_ > kMatters * std::sqrt(squares_ / static_cast<double>(numbers_));
}

std::size_t CsvColumn::category(std::string_view cell) const {
  const auto found = place_.find(std::string(cell));
  return found == place_.end() ? categories_.size() : found->second;
}

void CsvColumn::require_usable(const std::string& file, bool texts_are_welcome) const {
  const bool mixed = numbers_ > 0 && texts_ > 0;
  if (first_missing_ && (!mixed || first_missing_->line < first_text_->line)) {
    refuse_number(file, first_missing_->line, text_, first_missing_->cell);
  }
  if (mixed) refuse_number(file, first_text_->line, text_, first_text_->cell);
  if (!is_text()) {
    if (numbers_ == 0) throw FileError(fmt::format("{}: {} is empty: leave it out with --ignore-columns", file, text_));
    return;
  }
  if (csv_date(first_text_->cell)) refuse_number(file, first_text_->line, text_, first_text_->cell);
  if (!texts_are_welcome) {
    throw FileError(
        fmt::format("{}:{}: {} holds \"{}\": --text-columns one-hot makes an input of 0 or 1 for each text, "
                    "--ignore-columns leaves the column out",
                    file, first_text_->line, text_, readable(first_text_->cell.substr(0, kCellShown))));
  }
  if (categories_.size() > kMostCategories) {
    throw FileError(
        fmt::format("{}: {} holds more than {} different texts (the first is \"{}\"), which are no "
                    "categories: leave it out with --ignore-columns",
                    file, text_, kMostCategories, readable(first_text_->cell.substr(0, kCellShown))));
  }
}

}  // namespace lockstep::io
