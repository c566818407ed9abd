#include "io/formats/csv_classes.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {

std::string CsvClasses::number_name(std::string_view text) const { return class_name(csv_plain(text, *style_)); }

void CsvClasses::follow(Known known) {
  known_ = std::move(known);
  names_ = known_->names;
  known_are_numbers_ = names_.empty() || all_whole_numbers(names_);
  known_names_ = KnownNames(names_.empty() ? numbered_classes(known_->classes) : names_);
}

void CsvClasses::add(std::string_view text, std::int64_t line) {
  const auto first = [&](std::optional<Seen>& seen) {
    if (!seen) seen = Seen{.cell = std::string(text), .line = line};
  };
  const std::string as_it_is(text);
  if (known_) {
    const std::optional<std::size_t> place = known_names_.find(as_it_is, csv_plain(text, *style_));
    if (!place) return first(first_unknown_);
    if (!known_are_numbers_) known_names_.saw(*place, as_it_is);
    return;
  }
  if (texts_as_they_are_.contains(as_it_is)) return;
  if (texts_as_they_are_.size() <= kMaxClasses) texts_as_they_are_.insert(as_it_is);
  const std::string name = number_name(text);
  if (place_.contains(name)) return;
  if (const std::optional<std::int64_t> number = class_number(name)) {
    ++whole_;
    negative_ = negative_ || *number < 0;
    if (*number > largest_) {
      largest_ = *number;
      first_large_ = Seen{.cell = std::string(text), .line = line};
    }
  } else if (csv_missing(text)) {
    first(first_missing_);
  } else if (csv_number(text, *style_)) {
    first(first_fraction_);
  } else {
    ++texts_;
    if (odd_number(text, *style_)) {
      ++odd_;
      first(first_odd_);
    }
  }
  if (place_.size() > kMaxClasses) return;
  place_.emplace(name, static_cast<std::int32_t>(place_.size()));
  names_.push_back(name);
}

bool CsvClasses::too_many() const noexcept {
  const std::size_t different = texts_ > 0 ? texts_as_they_are_.size() : names_.size();
  return !known_ && different > kMaxClasses && (texts_ > 0 || negative_ || first_fraction_ || first_missing_);
}

void CsvClasses::finish(std::int64_t samples) {
  samples_ = samples;
  if (known_) return;
  const bool numbers = whole_ > 0 && !negative_ && texts_ == 0 && !first_fraction_ && !first_missing_;
  const bool gapless = numbers && largest_ + 1 == std::ssize(names_);
  if (gapless || (numbers && names_.size() > kMaxClasses)) {
    names_.clear();
    place_.clear();
    return;
  }
  if (texts_ > 0) names_.assign(texts_as_they_are_.begin(), texts_as_they_are_.end());
  sort_class_names(names_);
  place_.clear();
  for (std::size_t i = 0; i < names_.size(); ++i) place_[names_[i]] = static_cast<std::int32_t>(i);
}

std::optional<std::string> CsvClasses::complaint(const std::string& file, const std::string& column) const {
  const auto at = [&](const Seen& seen) {
    return fmt::format("{}:{}: {} holds \"{}\"", file, seen.line, column, csv_shown(seen.cell));
  };
  if (first_unknown_) {
    const std::vector<std::string> all =
        known_->names.empty() ? numbered_classes(std::min<std::int64_t>(known_->classes, 1 << 16)) : known_->names;
    return fmt::format("{}, a class that {} does not know; it knows {}: leave such lines out, or train on them",
                       at(*first_unknown_), known_->from, csv_listed(all));
  }
  if (const std::string twins = known_names_.twins(); !twins.empty()) {
    return fmt::format("{}: {} holds {} among the classes of {}: write them alike, or pack both tables anew", file,
                       column, twins, known_->from);
  }
  if (known_) return std::nullopt;
  if (texts_ == 0 && first_fraction_) {
    return fmt::format("{}, which is no whole number below 2^53, and so is no class: --regression predicts numbers",
                       at(*first_fraction_));
  }
  if (texts_ == 0 && whole_ > 0 && first_missing_) {
    return fmt::format(
        "{}, and other labels are numbers: it is missing. --missing drop leaves such lines out, except for the word "
        "none, which may be a class",
        at(*first_missing_));
  }
  if (odd_ > 0 && odd_ == texts_) {
    return fmt::format("{}: {}", at(*first_odd_), odd_number(first_odd_->cell, *style_).value_or(""));
  }
  if (texts_ == 0 && largest_ >= 0 && !negative_ && !plausible_classes(largest_ + 1, samples_)) {
    return fmt::format(
        "{}, which {} samples do not explain: it is damaged, or the labels are no class numbers: "
        "--regression predicts numbers",
        at(*first_large_), samples_);
  }
  return std::nullopt;
}

std::string CsvClasses::remark(const std::string& column) const {
  if (known_ || names_.empty() || !all_whole_numbers(names_)) return "";
  return fmt::format(
      "{} holds {} different whole numbers, {} to {}: {} classes with these names, and class {} is output "
      "0 of the network (--regression predicts numbers)",
      column, names_.size(), names_.front(), names_.back(), names_.size(), names_.front());
}

std::int32_t CsvClasses::index(std::string_view text) const {
  const std::string as_it_is(text);
  if (known_) return static_cast<std::int32_t>(known_names_.find(as_it_is, csv_plain(text, *style_)).value());
  if (!names_.empty()) return place_.at(texts_ > 0 ? as_it_is : number_name(text));
  return static_cast<std::int32_t>(class_number(csv_plain(text, *style_)).value());
}

}  // namespace lockstep::io
