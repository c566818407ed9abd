/// \file
/// How the cells of a table became numbers: the columns behind the features of a sample, by their names, and the names
/// of what is learnt. Manifests and checkpoints hold it; data are matched with it by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// One column that the network sees.
struct TableColumn {
  enum class Kind {
    numbers,     ///< one feature
    categories,  ///< one feature of 0 or 1 for each category; all are 0 where the cell is missing or unknown
  };
  std::string name;
  Kind kind = Kind::numbers;
  std::vector<std::string> categories = {};  ///< in the order of their features: sorted
  double fill = 0;                           ///< of numbers: the mean, which stands where a cell is missing
  std::int64_t filled = 0;                   ///< cells where it does

  std::int64_t features() const noexcept {
    return kind == Kind::numbers ? 1 : static_cast<std::int64_t>(categories.size());
  }
  bool operator==(const TableColumn&) const = default;
};

struct TableSchema {
  bool named = true;                 ///< false: the file has no header, and names are "column 3"
  std::vector<TableColumn> columns;  ///< in the order of their features
  std::vector<std::string> labels;   ///< of the column with the classes, or of each number to predict; empty: none

  std::int64_t features() const noexcept;
  /// The first feature of each column.
  std::vector<std::int64_t> first_features() const;
  bool operator==(const TableSchema&) const = default;
};

/// What becomes of a category that a table does not know.
enum class UnknownCategories {
  error,
  none,  ///< the sample has none of the categories
};

/// "EUR" of "price [EUR]"; "" where a name says none.
std::string unit_of(std::string_view name);

/// One line of JSON.
std::string to_json(const TableSchema& table);
/// Throws FileError: not JSON, an entry missing or of the wrong kind, two columns of one name.
TableSchema table_from_json(std::string_view text);

/// Where each of some columns is among others, by name.
struct PairedNames {
  std::vector<std::optional<std::size_t>> places;  ///< of each that is wanted; nullopt: there is none
  std::vector<std::string> missing;                ///< names of those
  std::vector<std::string> surplus;                ///< names that nobody wants
};
PairedNames pair_names(std::span<const std::string> wanted, std::span<const std::string> present);

}  // namespace lockstep::io
