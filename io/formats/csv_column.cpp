#include "io/formats/csv_column.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/text/shell_word.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// A column with more different texts holds names or sentences, not categories.
constexpr std::size_t kMaxCategories = 1000;

bool is_padded(std::string_view number) {
  return number.size() > 1 && number[0] == '0' && number.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void CsvColumn::follow(const TableColumn& known, UnknownCategories unknown) {
  known_ = known;
  when_unknown_ = unknown;
  categories_ = known.categories;
  known_names_ = KnownNames(categories_);
}

std::optional<std::size_t> CsvColumn::place_of(std::string_view cell) const {
  if (known_) return known_names_.find(readable(cell), csv_plain(cell, *style_));
  const auto found = place_.find(readable(cell));
  return found == place_.end() ? std::nullopt : std::optional(found->second);
}

void CsvColumn::add(std::string_view cell, std::int64_t line) {
  if (csv_missing(cell)) {
    if (!first_missing_) first_missing_ = Seen{.cell = std::string(cell), .line = line};
    return;
  }
  if (categorical_ || (known_ && known_->kind == TableColumn::Kind::categories)) return add_text(cell, line);
  const std::optional<double> number = csv_number(cell, *style_);
  if (!number) return add_text(cell, line);
  const double value = *number;
  if (!padded_ && is_padded(cell)) padded_ = cell;
  if (numbers_ == 0) first_ = least_ = greatest_ = value;
  consecutive_ = consecutive_ && value == first_ + static_cast<double>(numbers_);
  least_ = std::min(least_, value);
  greatest_ = std::max(greatest_, value);
  ++numbers_;
  sum_ += value;
  const double from_centre = value - centre_;
  centre_ += from_centre / static_cast<double>(numbers_);
  squares_ += from_centre * (value - centre_);
  rounding_ = std::max(rounding_, std::abs(value - static_cast<double>(static_cast<float>(value))));
}

void CsvColumn::add_text(std::string_view cell, std::int64_t line) {
  ++texts_;
  if (!first_text_) first_text_ = Seen{.cell = std::string(cell), .line = line};
  if (known_) {
    if (known_->kind == TableColumn::Kind::numbers) return;
    if (const std::optional<std::size_t> place = place_of(cell)) return known_names_.saw(*place, readable(cell));
    if (when_unknown_ == UnknownCategories::none) ++unknown_;
    if (!first_unknown_) first_unknown_ = Seen{.cell = std::string(cell), .line = line};
    return;
  }
  if (numbers_ > 0 || categories_.size() > kMaxCategories) return;
  const std::string category = readable(cell);
  if (!place_.emplace(category, categories_.size()).second) return;
  categories_.push_back(category);
  if (!categorical_ && !first_odd_ && odd_number(cell, *style_)) {
    first_odd_ = Seen{.cell = std::string(cell), .line = line};
  }
}

void CsvColumn::finish() {
  if (known_) return;
  sort_class_names(categories_);
  for (std::size_t i = 0; i < categories_.size(); ++i) place_[categories_[i]] = i;
}

bool CsvColumn::counts_lines() const noexcept {
  constexpr std::int64_t kFew = 10;
  return numbers_ >= kFew && texts_ == 0 && consecutive_;
}

bool CsvColumn::needs_double() const noexcept {
  constexpr double kMatters = 1e-6;
  return numbers_ > 0 && rounding_ > kMatters * std::sqrt(squares_ / static_cast<double>(numbers_));
}

std::size_t CsvColumn::category(std::string_view cell) const {
  if (csv_missing(cell)) return categories_.size();
  return place_of(cell).value_or(categories_.size());
}

TableColumn CsvColumn::schema() const {
  if (known_) {
    TableColumn column = *known_;
    column.filled = column.kind == TableColumn::Kind::numbers ? filled_ : 0;
    return column;
  }
  if (holds_categories()) {
    return {.name = name_, .kind = TableColumn::Kind::categories, .categories = categories_};
  }
  return {.name = name_, .kind = TableColumn::Kind::numbers, .fill = mean(), .filled = filled_};
}

std::string CsvColumn::refusal(const std::string& file, const Seen& seen) const {
  return number_refusal(file, seen.line, text_, seen.cell, *style_);
}

std::optional<std::string> CsvColumn::complaint(const std::string& file, bool texts_are_welcome) const {
  if (known_ && known_->kind == TableColumn::Kind::categories) {
    if (first_missing_) return refusal(file, *first_missing_);
    if (const std::string twins = known_names_.twins(); !twins.empty()) {
      return fmt::format("{}: {} holds {} among the known categories: write them alike, or pack both tables anew", file,
                         text_, twins);
    }
    if (!first_unknown_ || when_unknown_ == UnknownCategories::none) return std::nullopt;
    return fmt::format(
        "{}:{}: {} holds \"{}\", a category that is not known; known are {}: --unknown-categories none gives such "
        "cells no category",
        file, first_unknown_->line, text_, csv_shown(first_unknown_->cell), csv_listed(categories_));
  }
  const bool numbers_only = known_.has_value();
  const bool mixed = !categorical_ && texts_ > 0 && (numbers_ > 0 || numbers_only);
  if (first_missing_ && (!mixed || first_missing_->line < first_text_->line)) return refusal(file, *first_missing_);
  if (mixed) return refusal(file, *first_text_);
  if (!holds_categories()) {
    if (numbers_ > 0 || numbers_only) return std::nullopt;
    return fmt::format("{}: {} is empty: leave it out with --ignore-columns", file, text_);
  }
  if (texts_ == 0) return fmt::format("{}: {} is empty: leave it out with --ignore-columns", file, text_);
  if (categories_.size() > kMaxCategories) {
    return fmt::format(
        "{}: {} holds more than {} different texts (the first is \"{}\"), which are no categories: leave it out with "
        "--ignore-columns, make it the name of each sample with --id-column, or, to learn from the texts, store the "
        "tokens and the labels as arrays of HDF5 or NPZ",
        file, text_, kMaxCategories, csv_shown(first_text_->cell));
  }
  if (categorical_) return std::nullopt;
  const std::string kCategories = fmt::format("; --categories {} takes such cells as categories", shell_word(word_));
  if (csv_date(first_text_->cell)) return refusal(file, *first_text_) + kCategories;
  if (first_odd_) return refusal(file, *first_odd_) + kCategories;
  if (categories_.size() > 1) {
    const std::optional<std::string> unit = number_suffix(categories_[0]);
    const bool same = unit && std::all_of(categories_.begin(), categories_.end(),
                                          [&](const std::string& one) { return number_suffix(one) == unit; });
    if (same) {
      return fmt::format("{}:{}: {} holds \"{}\": numbers with \"{}\" behind each: leave that away{}", file,
                         first_text_->line, text_, csv_shown(first_text_->cell), readable(*unit), kCategories);
    }
  }
  if (!texts_are_welcome) {
    return fmt::format(
        "{}:{}: {} holds \"{}\": --text-columns one-hot makes an input of 0 or 1 for each text, --ignore-columns "
        "leaves the column out",
        file, first_text_->line, text_, csv_shown(first_text_->cell));
  }
  return std::nullopt;
}

}  // namespace lockstep::io
