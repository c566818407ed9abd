#include "app/data/column_match.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "io/shards/class_names.hpp"

namespace lockstep::app {

namespace {

constexpr std::size_t kMaxColumns = 10;  ///< maximum number of columns in one message
constexpr const char* kPackAlike = "pack it again with --columns-from and the run or its data";

std::string name_list(const std::vector<std::string>& names) {
  const auto shown = std::span(names).first(std::min(names.size(), kMaxColumns));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "");
}

std::vector<std::string> column_names(const io::TableSchema& table) {
  std::vector<std::string> names;
  std::transform(table.columns.begin(), table.columns.end(), std::back_inserter(names),
                 [](const io::TableColumn& column) { return column.name; });
  return names;
}

bool is_in_order(const std::vector<std::int64_t>& places, std::int64_t all) {
  if (std::ssize(places) != all) return false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

/// Pairs the columns of the network's table with those of the data.
io::PairedNames pair_columns(const io::TableSchema& trained_on, const io::TableSchema& data,
                             const std::filesystem::path& path) {
  const std::vector<std::string> wanted = column_names(trained_on), present = column_names(data);
  const bool by_place = !(trained_on.named && data.named);
  if (by_place) {
    if (wanted.size() != present.size()) {
      throw UsageError(fmt::format(
          "{} has {} columns, the network was trained on {}, and not both have names: nobody can tell which "
          "is which",
          path.string(), present.size(), wanted.size()));
    }
    io::PairedNames paired;
    for (std::size_t i = 0; i < wanted.size(); ++i) paired.places.emplace_back(i);
    return paired;
  }
  io::PairedNames paired = io::pair_names(wanted, present);
  if (!paired.missing.empty()) {
    throw UsageError(fmt::format("{} lacks {} that the network was trained on: {}; it has {}", path.string(),
                                 paired.missing.size() == 1 ? "a column" : "columns", name_list(paired.missing),
                                 name_list(present)));
  }
  return paired;
}

/// Appends to `places` the data feature that each feature of the column comes from; -1: none.
void match_column(const io::TableColumn& wanted, const io::TableColumn& given, std::int64_t first,
                  const std::filesystem::path& path, io::UnknownCategories unknown, std::vector<std::int64_t>& places,
                  std::vector<std::string>& notes) {
  using Kind = io::TableColumn::Kind;
  if (wanted.kind != given.kind) {
    throw UsageError(fmt::format("{}: its column {} holds {}, and the network was trained on {}: {}", path.string(),
                                 given.name, given.kind == Kind::numbers ? "numbers" : "categories",
                                 wanted.kind == Kind::numbers ? "numbers" : "categories", kPackAlike));
  }
  if (wanted.kind == Kind::numbers) {
    if (given.filled > 0 && static_cast<float>(given.fill) != static_cast<float>(wanted.fill)) {
      throw UsageError(
          fmt::format("{}: {} missing cells of its column {} hold its own mean, {:.6g}, and the network was trained "
                      "with {:.6g} there: {}",
                      path.string(), given.filled, given.name, given.fill, wanted.fill, kPackAlike));
    }
    places.push_back(first);
    return;
  }
  std::vector<std::string> surplus;
  std::vector<std::int64_t> features(wanted.categories.size(), -1);
  const std::vector<std::optional<std::size_t>> known = io::places_among(wanted.categories, given.categories);
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i]) {
      features[*known[i]] = first + static_cast<std::int64_t>(i);
    } else {
      surplus.push_back(given.categories[i]);
    }
  }
  if (!surplus.empty() && unknown == io::UnknownCategories::error) {
    throw UsageError(
        fmt::format("{}: its column {} has categories that the network does not know: {}; it knows {}: "
                    "--unknown-categories none gives such samples none of them",
                    path.string(), given.name, name_list(surplus), name_list(wanted.categories)));
  }
  if (!surplus.empty()) {
    notes.push_back(fmt::format("{}: categories of {} that the network does not know count as none: {}", path.string(),
                                given.name, name_list(surplus)));
  }
  places.insert(places.end(), features.begin(), features.end());
}

/// Matches the targets, or warns if the class labels come from another column.
void match_targets(const io::TableSchema& trained_on, const io::DatasetInfo& data, const std::filesystem::path& path,
                   ColumnMatch& match) {
  const std::vector<std::string>& given = data.table->labels;
  if (data.y.name.empty() || given.empty() || trained_on.labels.empty() || given == trained_on.labels) return;
  if (!trained_on.named || !data.table->named) return;
  if (data.labels_are_classes) {
    match.warnings.push_back(
        fmt::format("{}: its labels are the column {}, and the network was trained on {}: is that "
                    "meant?",
                    path.string(), name_list(given), name_list(trained_on.labels)));
    return;
  }
  const io::PairedNames targets = io::pair_names(trained_on.labels, given);
  if (!targets.missing.empty()) {
    throw UsageError(fmt::format("{} lacks {} that the network predicts: {}; its targets are {}", path.string(),
                                 targets.missing.size() == 1 ? "a column" : "columns", name_list(targets.missing),
                                 name_list(given)));
  }
  for (const auto& place : targets.places) match.arrangement.targets.push_back(static_cast<std::int64_t>(*place));
  if (targets.surplus.empty()) {
    match.notes.push_back(fmt::format("targets of {} are matched by name", path.string()));
  } else {
    match.notes.push_back(fmt::format("{}: targets that the network does not predict are left out: {}", path.string(),
                                      name_list(targets.surplus)));
  }
}

}  // namespace

ColumnMatch match_columns(const std::optional<io::TableSchema>& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path, io::UnknownCategories unknown) {
  ColumnMatch match;
  if (!trained_on && !data.table) return match;
  if (!trained_on || !data.table) {
    match.warnings.push_back(fmt::format(
        "{}: its columns cannot be compared with those that the network was trained on, for only {} names ({}): they "
        "are taken in their order",
        path.string(), trained_on ? "the network knows their" : "the data know their",
        name_list(column_names(trained_on ? *trained_on : *data.table))));
    return match;
  }
  const io::PairedNames paired = pair_columns(*trained_on, *data.table, path);
  const std::vector<std::int64_t> firsts = data.table->first_features();
  for (std::size_t i = 0; i < trained_on->columns.size(); ++i) {
    const std::size_t place = *paired.places[i];
    match_column(trained_on->columns[i], data.table->columns[place], firsts[place], path, unknown,
                 match.arrangement.features, match.notes);
  }
  if (is_in_order(match.arrangement.features, data.table->features())) {
    match.arrangement.features.clear();
  } else if (paired.surplus.empty()) {
    match.notes.push_back(fmt::format("columns are matched by name: the {} of {} with the network's",
                                      data.table->columns.size(), path.string()));
  }
  if (!paired.surplus.empty()) {
    match.notes.push_back(fmt::format("{}: columns that the network does not know are left out: {}", path.string(),
                                      name_list(paired.surplus)));
  }
  match_targets(*trained_on, data, path, match);
  return match;
}

std::unique_ptr<io::Dataset> arranged(std::unique_ptr<io::Dataset> data,
                                      const std::optional<io::TableSchema>& trained_on, const ColumnMatch& match) {
  if (match.arrangement.empty()) return data;
  io::TableSchema table = trained_on.value();
  if (data->info().y.name.empty()) table.labels.clear();
  return std::make_unique<io::RearrangedDataset>(std::move(data), match.arrangement, std::move(table));
}

}  // namespace lockstep::app
