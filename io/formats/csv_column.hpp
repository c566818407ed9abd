/// \file
/// What a column of a table holds, as its cells come: numbers, or texts that are categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::io {

/// Without blanks at its ends.
std::string_view csv_trimmed(std::string_view text);
/// A number within the range of float32; what is too small for a double is 0.
std::optional<double> csv_number(std::string_view text);
/// An empty cell, or one of the words that stand for one: NA, N/A, NaN, null, none, ?
bool csv_missing(std::string_view text);
/// Whether it reads like a day, or a day and a time: 2024-05-31, 31.05.2024, 5/31/24 12:00.
bool csv_date(std::string_view text);
/// Throws FileError: the cell is missing, a date, or no number.
[[noreturn]] void refuse_number(const std::string& file, std::int64_t line, const std::string& column,
                                std::string_view text);

class CsvColumn {
 public:
  /// `text`: what messages call it.
  CsvColumn(std::size_t index, std::string text) : index_(index), text_(std::move(text)) {}

  void add(std::string_view cell, std::int64_t line);
  /// Throws FileError: numbers and texts in one column, dates, more than 1,000 different texts, a missing cell, texts
  /// where they are not welcome, or nothing at all.
  void require_usable(const std::string& file, bool texts_are_welcome) const;

  std::size_t index() const noexcept { return index_; }
  const std::string& text() const noexcept { return text_; }
  bool is_text() const noexcept { return numbers_ == 0 && texts_ > 0; }
  /// Inputs that become of it: 1, or one for each category.
  std::int64_t features() const noexcept {
    return is_text() ? static_cast<std::int64_t>(categories_.size()) : std::int64_t{1};
  }
  double mean() const noexcept { return numbers_ > 0 ? sum_ / static_cast<double>(numbers_) : 0; }
  /// float32 would move some of its numbers by a part of their deviation that may matter: Unix times, long numbers.
  bool needs_double() const noexcept;
  /// In the order of first sight.
  const std::vector<std::string>& categories() const noexcept { return categories_; }
  /// Beyond the last one where there is no such category.
  std::size_t category(std::string_view cell) const;

 private:
  struct Seen {
    std::string cell;
    std::int64_t line = 0;
  };
  std::size_t index_;
  std::string text_;
  std::int64_t numbers_ = 0, texts_ = 0;
  double sum_ = 0;
  double centre_ = 0, squares_ = 0;  ///< mean so far, sum of squared deviations from it (Welford 1962)
  double rounding_ = 0;              ///< by which float32 moves a number at most
  std::optional<Seen> first_text_, first_missing_;
  std::vector<std::string> categories_;
  std::unordered_map<std::string, std::size_t> place_;
};

}  // namespace lockstep::io
