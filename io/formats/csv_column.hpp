/// \file
/// Collects the cells of a table's column: numbers, or texts that are categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/formats/csv_number.hpp"
#include "io/shards/class_names.hpp"
#include "io/shards/table_schema.hpp"

namespace lockstep::io {

class CsvColumn {
 public:
  /// `text`: the column's name in messages. `word`: its name in options. `style` outlives the column.
  CsvColumn(std::size_t index, std::string name, std::string text, std::string word, const NumberStyle& style)
      : index_(index), name_(std::move(name)), text_(std::move(text)), word_(std::move(word)), style_(&style) {}

  /// Treats the cells as categories, in any form.
  void hold_categories() { categorical_ = true; }
  /// Takes kind, categories and fill from a column of another table.
  void follow(const TableColumn& known, UnknownCategories unknown);

  void add(std::string_view cell, std::int64_t line);
  /// Counts a missing cell, which becomes the mean, or none of the categories.
  void fill() { ++filled_; }
  /// Sorts the categories. Call it after the last cell.
  void finish();
  /// The reason why the column cannot be used, one sentence: numbers and texts in one column, dates, numbers in another
  /// spelling, more than 1,000 different texts, a missing cell, unwanted texts, an unknown category, two texts for one
  /// known category, or no content.
  std::optional<std::string> complaint(const std::string& file, bool texts_are_welcome) const;

  std::size_t index() const noexcept { return index_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& text() const noexcept { return text_; }
  /// Names the column in an option, also in a list: its name or its index. A shell needs it quoted.
  const std::string& word() const noexcept { return word_; }
  bool holds_categories() const noexcept {
    return known_ ? known_->kind == TableColumn::Kind::categories : categorical_ || (numbers_ == 0 && texts_ > 0);
  }
  bool holds_nothing() const noexcept { return numbers_ == 0 && texts_ == 0; }
  /// True for ten numbers or more, each one more than the previous one.
  bool counts_lines() const noexcept;
  /// The first number with zeros in front, as postcodes and other codes have them.
  const std::optional<std::string>& padded_number() const noexcept { return padded_; }
  double mean() const noexcept {
    if (known_) return known_->fill;
    return mean_ ? *mean_ : numbers_ > 0 ? sum_ / static_cast<double>(numbers_) : 0;
  }
  /// Replaces the mean of all cells by that of some of them.
  void set_mean(double mean) noexcept { mean_ = mean; }
  /// True if rounding to float32 would move numbers by a noticeable part of their deviation: Unix times, long numbers.
  bool needs_double() const noexcept;
  const std::vector<std::string>& categories() const noexcept { return categories_; }
  /// Index of the cell's category; the number of categories if there is no such one.
  std::size_t category(std::string_view cell) const;
  std::int64_t filled() const noexcept { return filled_; }
  /// Number of cells with an unknown category, if these are accepted.
  std::int64_t unknown() const noexcept { return unknown_; }
  double least() const noexcept { return least_; }
  double greatest() const noexcept { return greatest_; }
  TableColumn schema() const;

 private:
  struct Seen {
    std::string cell;
    std::int64_t line = 0;
  };
  std::optional<std::size_t> place_of(std::string_view cell) const;
  void add_text(std::string_view cell, std::int64_t line);
  std::string refusal(const std::string& file, const Seen& seen) const;

  std::size_t index_;
  std::string name_, text_, word_;
  const NumberStyle* style_;
  bool categorical_ = false;
  std::optional<TableColumn> known_;
  KnownNames known_names_;
  UnknownCategories when_unknown_ = UnknownCategories::error;
  std::int64_t numbers_ = 0, texts_ = 0, filled_ = 0, unknown_ = 0;
  std::optional<double> mean_;
  double sum_ = 0, first_ = 0, least_ = 0, greatest_ = 0;
  double centre_ = 0, squares_ = 0;  ///< mean so far, sum of squared deviations from it (Welford 1962)
  double rounding_ = 0;              ///< largest change of a number by rounding to float32
  bool consecutive_ = true;
  std::optional<std::string> padded_;
  std::optional<Seen> first_text_, first_missing_, first_odd_, first_unknown_;
  std::vector<std::string> categories_;
  std::unordered_map<std::string, std::size_t> place_;
};

}  // namespace lockstep::io
