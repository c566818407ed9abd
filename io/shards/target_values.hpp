/// \file
/// What numbers to predict look like: any numbers, zeros and ones, or rows of zeros with a single one.
#pragma once

#include <bitset>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

enum class TargetValues {
  any,
  binary,   ///< 0 and 1: labels, any of which a sample has
  one_hot,  ///< a single 1 in each row: classes
};
/// "any", "binary", "one-hot"; the manifest has them.
const char* name_of(TargetValues values) noexcept;
std::optional<TargetValues> target_values_of_name(std::string_view name) noexcept;

/// What the labels of a set are, one number for each sample.
enum class LabelMeaning {
  automatic,  ///< whole numbers are classes: those of integer types always, floats where WholeNumbers says so
  classes,
  numbers,  ///< to predict
};

/// A label as the file has it: unsigned ones of 64 bits do not turn negative.
template <class Number>
std::string label_text(Number label) {
  return fmt::format("{}", +label);
}
/// Whether a number can be the number of a class.
template <class Number>
bool is_whole(Number label) noexcept {
  if constexpr (std::is_floating_point_v<Number>) return label >= 0 && label < 9e18 && std::floor(label) == label;
  return label >= 0;
}

/// Looks at floats, one for each sample, in any order: are they numbers of classes? MATLAB, Keras and pandas store such
/// numbers as floats.
class WholeNumbers {
 public:
  void add(FileType type, std::span<const std::byte> values);
  /// All are whole and at least 0.
  bool are_whole() const noexcept { return whole_; }
  /// And they look like classes: below 1,000, at least half of the numbers up to the largest one occur, twice on
  /// average.
  bool are_classes() const noexcept;

 private:
  static constexpr std::int64_t kMaxClasses = 1000;
  bool whole_ = true;
  std::size_t count_ = 0;
  double largest_ = 0;
  std::bitset<kMaxClasses> seen_;
};

/// Looks at the rows of a whole set, in any order.
class TargetPattern {
 public:
  /// Numbers of a row.
  explicit TargetPattern(std::int64_t columns) : columns_(static_cast<std::size_t>(columns)) {}

  /// Whole rows.
  void add(FileType type, std::span<const std::byte> rows);
  /// Rows that another one has seen.
  void add(TargetValues others) noexcept;
  bool is_binary() const noexcept { return binary_; }
  /// Of no rows: one_hot. One number by itself is never one_hot.
  TargetValues values() const noexcept;

 private:
  std::size_t columns_;
  bool binary_ = true, single_ = true;
};

}  // namespace lockstep::io
