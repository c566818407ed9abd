/// \file
/// Encoding of a table's cells as numbers: the columns behind the features of a sample, and the names of the targets.
/// Manifests and checkpoints store it. Columns of other data are matched by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// One column of the network's input.
struct TableColumn {
  enum class Kind {
    numbers,     ///< one feature
    categories,  ///< one feature of 0 or 1 per category; all are 0 if the cell is missing or unknown
  };
  std::string name;
  Kind kind = Kind::numbers;
  std::vector<std::string> categories = {};  ///< sorted, in the order of their features
  double fill = 0;                           ///< for columns of numbers: the mean, which replaces missing cells
  std::int64_t filled = 0;                   ///< number of cells replaced

  std::int64_t features() const noexcept {
    return kind == Kind::numbers ? 1 : static_cast<std::int64_t>(categories.size());
  }
  bool operator==(const TableColumn&) const = default;
};

struct TableSchema {
  bool named = true;                 ///< false: the file has no header, and names are "column 3"
  std::vector<TableColumn> columns;  ///< in the order of their features
  std::vector<std::string> labels;   ///< name of the class column, or of each target; empty: none

  std::int64_t features() const noexcept;
  /// The first feature of each column.
  std::vector<std::int64_t> first_features() const;
  bool operator==(const TableSchema&) const = default;
};

/// Treatment of a category that the schema does not have.
enum class UnknownCategories {
  error,
  none,  ///< the sample has none of the categories
};

/// "EUR" for "price [EUR]"; "" for a name without unit.
std::string unit_of(std::string_view name);

/// One line of JSON.
std::string to_json(const TableSchema& table);
/// Throws FileError: not JSON, an entry missing or of the wrong kind, two columns of one name.
TableSchema table_from_json(std::string_view text);

/// Positions of wanted columns among the present ones, by name.
struct PairedNames {
  std::vector<std::optional<std::size_t>> places;  ///< position of each wanted column; nullopt: missing
  std::vector<std::string> missing;                ///< names of missing columns
  std::vector<std::string> surplus;                ///< names of unwanted columns
};
PairedNames pair_names(std::span<const std::string> wanted, std::span<const std::string> present);

}  // namespace lockstep::io
