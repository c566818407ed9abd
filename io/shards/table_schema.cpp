#include "io/shards/table_schema.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "io/files/json_text.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

constexpr const char* kNumbers = "numbers";
constexpr const char* kCategories = "categories";

TableColumn column_from(const json& object) {
  TableColumn column{.name = text_entry(object, "name")};
  const std::string kind = text_entry(object, "kind");
  if (kind == kCategories) {
    column.kind = TableColumn::Kind::categories;
    column.categories = texts_entry(object, kCategories);
    if (column.categories.empty()) throw FileError(fmt::format("the column {} has no categories", column.name));
  } else if (kind == kNumbers) {
    column.fill = real_entry(object, "fill");
    column.filled = integer_entry(object, "filled");
  } else {
    throw FileError(fmt::format("the column {} is neither {} nor {}", column.name, kNumbers, kCategories));
  }
  return column;
}

void require_distinct(std::vector<std::string> names, std::string_view what) {
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) throw FileError(fmt::format("two {} are called {}", what, *twin));
}

}  // namespace

std::int64_t TableSchema::features() const noexcept {
  std::int64_t features = 0;
  for (const TableColumn& column : columns) features += column.features();
  return features;
}

std::vector<std::int64_t> TableSchema::first_features() const {
  std::vector<std::int64_t> firsts;
  std::int64_t next = 0;
  for (const TableColumn& column : columns) {
    firsts.push_back(next);
    next += column.features();
  }
  return firsts;
}

std::string unit_of(std::string_view name) {
  const std::size_t begin = name.rfind('[');
  if (begin == std::string_view::npos || begin == 0 || !name.ends_with(']')) return "";
  return std::string(name.substr(begin + 1, name.size() - begin - 2));
}

std::string to_json(const TableSchema& table) {
  json columns = json::array();
  for (const TableColumn& column : table.columns) {
    json object = {{"name", column.name}};
    if (const std::string unit = unit_of(column.name); !unit.empty()) object["unit"] = unit;
    if (column.kind == TableColumn::Kind::categories) {
      object["kind"] = kCategories;
      object[kCategories] = column.categories;
    } else {
      object["kind"] = kNumbers;
      object["fill"] = column.fill;
      object["filled"] = column.filled;
    }
    columns.push_back(std::move(object));
  }
  return to_text({{"named", table.named ? 1 : 0}, {"columns", std::move(columns)}, {"labels", table.labels}});
}

TableSchema table_from_json(std::string_view text) {
  const json parsed = parse_json(text);
  TableSchema table{
      .named = integer_entry(parsed, "named") != 0, .columns = {}, .labels = texts_entry(parsed, "labels")};
  std::vector<std::string> names = table.labels;
  for (const json& object : list_entry(parsed, "columns")) {
    table.columns.push_back(column_from(object));
    names.push_back(table.columns.back().name);
    require_distinct(table.columns.back().categories, "categories");
  }
  require_distinct(std::move(names), "columns");
  return table;
}

PairedNames pair_names(std::span<const std::string> wanted, std::span<const std::string> present) {
  std::map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < present.size(); ++i) place.emplace(present[i], i);
  PairedNames paired;
  std::set<std::string_view> used;
  for (const std::string& name : wanted) {
    const auto found = place.find(name);
    if (found == place.end()) {
      paired.places.emplace_back(std::nullopt);
      paired.missing.push_back(name);
    } else {
      paired.places.emplace_back(found->second);
      used.insert(name);
    }
  }
  for (const std::string& name : present) {
    if (!used.contains(name)) paired.surplus.push_back(name);
  }
  return paired;
}

}  // namespace lockstep::io
