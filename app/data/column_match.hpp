/// \file
/// Matches the columns of a table with the columns that a network was trained on. Columns and categories are matched by
/// name, in any order.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "io/datasets/rearranged_dataset.hpp"
#include "io/shards/table_schema.hpp"

namespace lockstep::app {

struct ColumnMatch {
  io::Arrangement arrangement;        ///< empty: the columns already have the network's order
  std::vector<std::string> notes;     ///< mapped and omitted columns, a sentence each
  std::vector<std::string> warnings;  ///< comparisons that were not possible, a sentence each
};
/// Matches the columns of `data` with those of `trained_on`, the network's columns; nullopt: their names are unknown.
/// Throws UsageError if the data lack a column, or if a column has another kind (numbers or categories), a category
/// that the network does not know (unless `unknown` accepts it), or another mean in place of missing cells.
ColumnMatch match_columns(const std::optional<io::TableSchema>& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path, io::UnknownCategories unknown);

/// Returns `data` with columns and targets in the network's order.
std::unique_ptr<io::Dataset> arranged(std::unique_ptr<io::Dataset> data,
                                      const std::optional<io::TableSchema>& trained_on, const ColumnMatch& match);

}  // namespace lockstep::app
