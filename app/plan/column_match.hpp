/// \file
/// The columns of a table beside those that a network was trained on: by name, whatever their order, and categories by
/// theirs.
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
  io::Arrangement arrangement;        ///< empty: the numbers lie as the network knows them
  std::vector<std::string> notes;     ///< what was mapped or left out, a sentence each
  std::vector<std::string> warnings;  ///< what could not be compared, a sentence each
};
/// `trained_on`: what the network knows; nullopt: no names. Throws UsageError where the data lack a column, where it
/// holds other things, has a category that the network does not know, or has its missing cells filled with another
/// mean.
ColumnMatch match_columns(const std::optional<io::TableSchema>& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path, io::UnknownCategories unknown);

/// The data with columns and targets as the network knows them.
std::unique_ptr<io::Dataset> arranged(std::unique_ptr<io::Dataset> data,
                                      const std::optional<io::TableSchema>& trained_on, const ColumnMatch& match);

}  // namespace lockstep::app
