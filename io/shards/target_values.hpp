/// \file
/// Classifies targets: any numbers, zeros and ones, or rows of zeros with a single 1.
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
#include <vector>

#include <fmt/format.h>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

enum class TargetValues {
  any,
  binary,   ///< 0 and 1: binary labels, any number of which a sample may have
  one_hot,  ///< a single 1 in each row: classes
};
/// "any", "binary", "one-hot", as in the manifest.
const char* name_of(TargetValues values) noexcept;
std::optional<TargetValues> target_values_of_name(std::string_view name) noexcept;

/// Meaning of a set's labels, one number per sample.
enum class LabelMeaning {
  automatic,  ///< whole numbers are classes: integer types always, floats if WholeNumbers decides so
  classes,
  numbers,  ///< targets of a regression
  masks,    ///< a class at each position of a sample; automatic for labels of two extents or more
};

/// True if the shapes suggest that y has a class at each position of a sample: labels of two or more extents, beside
/// samples of two or more. Trailing extents of 1 do not count.
bool are_shaped_as_masks(std::span<const std::int64_t> x, std::span<const std::int64_t> y) noexcept;
/// The extents without trailing ones.
std::vector<std::int64_t> without_trailing_ones(std::vector<std::int64_t> extents);
/// " at [4, 5]": position of element `index` of a sample; "" for a sample of a single element.
std::string place_text(std::span<const std::int64_t> extents, std::int64_t index);

/// Formats a label as stored: unsigned 64-bit labels do not turn negative.
template <class Number>
std::string label_text(Number label) {
  return fmt::format("{}", +label);
}
/// True if the number can be a class number.
template <class Number>
bool is_whole(Number label) noexcept {
  if constexpr (std::is_floating_point_v<Number>) return label >= 0 && label < 9e18 && std::floor(label) == label;
  return label >= 0;
}

/// Decides if floats, one per sample, can be class numbers: MATLAB, Keras and pandas store class numbers as floats. The
/// order does not matter.
class WholeNumbers {
 public:
  /// `ignored`: a number that does not count.
  explicit WholeNumbers(std::optional<std::int64_t> ignored = {}) : ignored_(ignored) {}
  void add(FileType type, std::span<const std::byte> values);
  /// True if all are whole and at least 0.
  bool are_whole() const noexcept { return whole_; }
  /// True if they also look like classes: below 1,000, and at least half of the numbers up to the largest one occur,
  /// twice on average.
  bool are_classes() const noexcept;

 private:
  static constexpr std::int64_t kMaxClasses = 1000;
  std::optional<std::int64_t> ignored_;
  bool whole_ = true;
  std::size_t count_ = 0;
  double largest_ = 0;
  std::bitset<kMaxClasses> seen_;
};

/// Classifies the rows of a whole set. The order does not matter.
class TargetPattern {
 public:
  /// `columns`: numbers per row.
  explicit TargetPattern(std::int64_t columns) : columns_(static_cast<std::size_t>(columns)) {}

  /// Adds whole rows.
  void add(FileType type, std::span<const std::byte> rows);
  /// Adds the result of other rows.
  void add(TargetValues others) noexcept;
  bool is_binary() const noexcept { return binary_; }
  /// one_hot without any rows. A single number is never one_hot.
  TargetValues values() const noexcept;

 private:
  std::size_t columns_;
  bool binary_ = true, single_ = true;
};

}  // namespace lockstep::io
