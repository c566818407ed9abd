/// \file
/// Interprets one cell of a table: a number, a missing value, a date, or a number in an undeclared spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// Spelling of a table's numbers.
struct NumberStyle {
  char decimal = '.';
  char thousands = 0;  ///< separator of groups of three digits; 0: none
  bool operator==(const NumberStyle&) const = default;
};

/// The text without blanks at its ends.
std::string_view csv_trimmed(std::string_view text);
/// A number within the range of float32; 0 for numbers too small for a double.
std::optional<double> csv_number(std::string_view text, const NumberStyle& style = {});
/// The number in the spelling of C: decimal point, no groups. Other texts stay unchanged.
std::string csv_plain(std::string_view text, const NumberStyle& style);
/// True for an empty cell, or a word for a missing value: NA, N/A, NaN, null, none, ?, #N/A, <NA>
bool csv_missing(std::string_view text);
/// True for a day, a time, or both: 2024-05-31, 31.05.2024, 5/31/24 12:00, 31-May-2024, 12:30.
bool csv_date(std::string_view text);
/// Describes a text that csv_number() refuses, but that is a number in another spelling (1,5; 1,234; 12%; $5; infinity;
/// several numbers in one cell), with a remedy; nullopt: any other text.
std::optional<std::string> odd_number(std::string_view text, const NumberStyle& style);
/// "kg" for "5 kg"; nullopt: not a number followed by letters.
std::optional<std::string> number_suffix(std::string_view text);
/// The beginning of a cell, for messages.
std::string csv_shown(std::string_view cell);
/// The first few names, for messages.
std::string csv_listed(const std::vector<std::string>& names);
/// The reason why a cell is not a number, and a remedy: "data.csv:3: column 1 (b) holds ..."
std::string number_refusal(const std::string& file, std::int64_t line, const std::string& column, std::string_view text,
                           const NumberStyle& style = {});

}  // namespace lockstep::io
