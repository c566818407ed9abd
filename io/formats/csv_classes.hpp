/// \file
/// The classes in a table's label column, and their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/formats/csv_number.hpp"
#include "io/shards/class_names.hpp"

namespace lockstep::io {

/// Whole numbers 0, 1, ... without gaps are class numbers, without names. Other labels are names. They are sorted:
/// whole numbers by value, in one spelling (2 and 2.0 are one class), texts by their bytes. Where any label is a text,
/// each is one: 007 and 7 are two classes.
class CsvClasses {
 public:
  /// Classes of another table; without names, classes are numbered. `style` outlives it.
  struct Known {
    std::vector<std::string> names;
    std::int64_t classes = 0;
    std::string from;  ///< name of the other table, for messages
  };
  explicit CsvClasses(const NumberStyle& style) : style_(&style) {}
  void follow(Known known);

  void add(std::string_view text, std::int64_t line);
  /// True if there are more different labels than classes can have.
  bool too_many() const noexcept;
  /// Call it after the last label.
  void finish(std::int64_t samples);
  /// The reason why these labels are not classes, one sentence: numbers with fractions, a missing label among numbers,
  /// an unknown class, two texts for one known class. `column`: its name in messages.
  std::optional<std::string> complaint(const std::string& file, const std::string& column) const;
  /// A remark for users, one sentence; "": none.
  std::string remark(const std::string& column) const;

  /// Empty if classes are numbers.
  const std::vector<std::string>& names() const noexcept { return names_; }
  std::int32_t index(std::string_view text) const;
  static constexpr std::size_t kMaxClasses = 65'536;

 private:
  struct Seen {
    std::string cell;
    std::int64_t line = 0;
  };
  /// The name in a column of numbers.
  std::string number_name(std::string_view text) const;

  const NumberStyle* style_;
  std::optional<Known> known_;
  KnownNames known_names_;
  bool known_are_numbers_ = false;
  std::optional<Seen> first_fraction_, first_missing_, first_odd_, first_unknown_, first_large_;
  std::int64_t whole_ = 0, texts_ = 0, odd_ = 0;  ///< counts of different labels
  std::int64_t largest_ = -1, samples_ = 0;
  bool negative_ = false;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int32_t> place_;
  std::unordered_set<std::string> texts_as_they_are_;  ///< at most kMaxClasses + 1
};

}  // namespace lockstep::io
