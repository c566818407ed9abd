/// \file
/// What one cell of a table says: a number, nothing, a date, or a number in a spelling that nobody has asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// How a table spells its numbers.
struct NumberStyle {
  char decimal = '.';
  char thousands = 0;  ///< between groups of three digits; 0: none
  bool operator==(const NumberStyle&) const = default;
};

/// Without blanks at its ends.
std::string_view csv_trimmed(std::string_view text);
/// A number within the range of float32; what is too small for a double is 0.
std::optional<double> csv_number(std::string_view text, const NumberStyle& style = {});
/// The number that csv_number() sees with a decimal point and no groups; other texts as they are.
std::string csv_plain(std::string_view text, const NumberStyle& style);
/// An empty cell, or one of the words that stand for one: NA, N/A, NaN, null, none, ?, #N/A, <NA>
bool csv_missing(std::string_view text);
/// Whether it reads like a day, a time, or both: 2024-05-31, 31.05.2024, 5/31/24 12:00, 31-May-2024, 12:30.
bool csv_date(std::string_view text);
/// A text that csv_number() refuses, and that is a number in another spelling (1,5; 1,234; 12%; $5; infinity; several
/// numbers in one cell). Says what it is and what to do; nullopt: another text.
std::optional<std::string> odd_number(std::string_view text, const NumberStyle& style);
/// "kg" of "5 kg"; nullopt: no number that letters follow.
std::optional<std::string> number_suffix(std::string_view text);
/// The beginning of a cell, for messages.
std::string csv_shown(std::string_view cell);
/// The first of some names, for messages.
std::string csv_listed(const std::vector<std::string>& names);
/// Why a cell is no number, and what to do: "data.csv:3: column 1 (b) holds ..."
std::string number_refusal(const std::string& file, std::int64_t line, const std::string& column, std::string_view text,
                           const NumberStyle& style = {});

}  // namespace lockstep::io
