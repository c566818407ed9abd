/// \file
/// What numbers to predict look like: any numbers, zeros and ones, or rows of zeros with a single one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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
