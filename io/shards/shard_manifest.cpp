#include "io/shards/shard_manifest.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/json_text.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "lockstep shards";
constexpr const char* kTargetValues = "target_values";  // only if not the default
constexpr const char* kTable = "table";                 // only for tables
constexpr const char* kUnit = "unit";                   // only where it is known
constexpr const char *kInput = "input", *kTarget = "target";
constexpr std::array kLabelKinds = {Labels::none, Labels::classes, Labels::targets};

/// Covers the compact text with sorted keys, so that indentation and order may change.
std::string checksum_of(json manifest) {
  manifest.erase("checksum");
  const std::string text = to_text(manifest);
  return to_hex(checksum(std::as_bytes(std::span(text))));
}

json as_json(const ShardManifest& manifest) {
  json result = {{"format", kFormat},
                 {"schema_version", manifest.schema_version()},
                 {"samples", manifest.samples},
                 {"labels", name_of(manifest.labels)},
                 {"classes", manifest.classes},
                 {"class_names", manifest.class_names},
                 {"value_min", manifest.value_min},
                 {"value_max", manifest.value_max},
                 {"mean", manifest.mean},
                 {"standard_deviation", manifest.standard_deviation},
                 {"source", manifest.source},
                 {"fields", json::array()},
                 {"shards", json::array()}};
  for (const Field& field : manifest.fields) {
    result["fields"].push_back(
        {{"name", field.name}, {"type", name_of(field.type)}, {"sample_shape", field.sample_shape}});
    if (!field.unit.empty()) result["fields"].back()[kUnit] = field.unit;
  }
  for (std::size_t f = 0; f < manifest.details.size(); ++f) {
    const FieldDetail& detail = manifest.details[f];
    result["fields"][f].update({{"role", detail.role == FieldRole::input ? kInput : kTarget},
                                {"value_min", detail.value_min},
                                {"value_max", detail.value_max},
                                {"mean", detail.mean},
                                {"standard_deviation", detail.standard_deviation}});
  }
  if (manifest.ignored_label) result[shard_attribute::kIgnoredLabel] = *manifest.ignored_label;
  if (manifest.target_values != TargetValues::any) result[kTargetValues] = name_of(manifest.target_values);
  if (manifest.tokens) result[kTokensName] = parse_json(to_json(*manifest.tokens));
  if (manifest.table) result[kTable] = parse_json(to_json(*manifest.table));
  if (manifest.id) result[kIdName] = {{"name", manifest.id->name}, {"bytes", manifest.id->bytes}};
  for (const ManifestShard& shard : manifest.shards) {
    result["shards"].push_back(
        {{"file", shard.file}, {"first", shard.first}, {"count", shard.count}, {"bytes", shard.bytes}});
    if (manifest.has_several_fields()) {
      for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
        result["shards"].back()["xxh3_64"][manifest.fields[f].name] = shard.checksums.at(f);
      }
    } else {
      result["shards"].back().update({{"xxh3_64_x", shard.checksum_x}, {"xxh3_64_y", shard.checksum_y}});
    }
    if (manifest.id) result["shards"].back()["xxh3_64_id"] = shard.checksum_id;
  }
  return result;
}

/// The description of a wrong entry, for the exception.
class Contradiction : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Requires that several inputs or targets have different names.
void check_several(const ShardManifest& manifest) {
  std::set<std::string> names{kIdName, kWeightName};
  for (const Field& field : manifest.fields) {
    if (field.name.empty() || field.name.find_first_of("/,") != std::string::npos || !names.insert(field.name).second) {
      throw Contradiction(fmt::format("\"{}\" is no name for one of several fields", field.name));
    }
  }
  const bool has_targets = !manifest.names(FieldRole::target).empty();
  if (manifest.names(FieldRole::input).empty() || has_targets != (manifest.labels != Labels::none) ||
      manifest.table.has_value()) {
    throw Contradiction("its fields, its labels and its table contradict each other");
  }
}

/// The first input, the first target, the other inputs, the other targets.
void put_in_order(ShardManifest& manifest) {
  std::vector<std::size_t> order;
  for (const bool rest : {false, true}) {
    for (const FieldRole role : {FieldRole::input, FieldRole::target}) {
      bool is_first = true;
      for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
        if (manifest.details[f].role != role) continue;
        if (is_first != rest) order.push_back(f);
        is_first = false;
      }
    }
  }
  const ShardManifest before = manifest;
  for (std::size_t i = 0; i < order.size(); ++i) {
    manifest.fields[i] = before.fields[order[i]];
    manifest.details[i] = before.details[order[i]];
  }
}

/// Requires x, or x and y with labels; for a corpus, tokens of a type that holds its vocabulary.
void check_fields(const ShardManifest& manifest) {
  const auto& fields = manifest.fields;
  if (manifest.tokens) {
    if (fields.size() != 1 || fields[0].name != kTokensName || fields[0].elements() != 1 ||
        fields[0].type == FileType::float32 || fields[0].type == FileType::float64 || manifest.labels != Labels::none) {
      throw Contradiction("its fields are not tokens alone");
    }
    if (manifest.tokens->tokens != manifest.samples) {
      throw Contradiction(
          fmt::format("it holds {} tokens, its vocabulary was made for {}", manifest.samples, manifest.tokens->tokens));
    }
    return;
  }
  if (manifest.has_several_fields()) return check_several(manifest);
  const bool has_y = fields.size() >= 2 && fields[1].name == "y";
  const bool has_weight = fields.size() == 3 && fields[2] == Field{kWeightName, FileType::float32, {}};
  if (fields.empty() || fields[0].name != "x" || fields.size() > 3 || has_y != (fields.size() >= 2) ||
      has_weight != (fields.size() == 3) || has_y != (manifest.labels != Labels::none)) {
    throw Contradiction("its fields are not x, or x and y with labels, and perhaps weight");
  }
}

/// Requires that a table's columns match the features of x, and its labels those of y.
void check_table(const ShardManifest& manifest) {
  const TableSchema& table = *manifest.table;
  if (manifest.tokens || table.features() != manifest.fields[0].elements()) {
    throw Contradiction("its table has other columns than its samples");
  }
  const auto labels = static_cast<std::int64_t>(table.labels.size());
  const std::int64_t learnt = manifest.fields.size() < 2           ? 0
                              : manifest.labels == Labels::targets ? manifest.fields[1].elements()
                                                                   : 1;
  if (labels != learnt) throw Contradiction("its table has other labels than its samples");
}

/// The limits of Hdf5File: neither elements nor bytes overflow.
bool possible_shape(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 1 || extent > (std::int64_t{1} << 59) / elements) return false;
    elements *= extent;
  }
  return true;
}

/// Checksums of several fields, by their names.
void take_checksums(const json& text, const ShardManifest& manifest, ManifestShard& shard) {
  for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
    const std::string& checksum = shard.checksums.emplace_back(text_entry(text, manifest.fields[f].name.c_str()));
    std::string& of_role = manifest.details[f].role == FieldRole::input ? shard.checksum_x : shard.checksum_y;
    of_role += (of_role.empty() ? "" : ",") + checksum;
  }
}

ShardManifest from_json(const json& text) {
  ShardManifest manifest;
  manifest.samples = integer_entry(text, "samples");
  manifest.classes = integer_entry(text, "classes");
  manifest.class_names = texts_entry(text, "class_names");
  manifest.value_min = real_entry(text, "value_min");
  manifest.value_max = real_entry(text, "value_max");
  manifest.mean = real_entry(text, "mean");
  manifest.standard_deviation = real_entry(text, "standard_deviation");
  manifest.source = text_entry(text, "source");
  const auto labels = labels_of_name(text_entry(text, "labels"));
  if (!labels) throw Contradiction("its entry labels is none of none, classes, targets");
  manifest.labels = *labels;
  if (text.contains(kTargetValues)) {
    const auto values = target_values_of_name(text_entry(text, kTargetValues));
    if (!values || manifest.labels != Labels::targets) {
      throw Contradiction("its entry target_values is none of any, binary, one-hot, or there are no targets");
    }
    manifest.target_values = *values;
  }
  for (const json& field : list_entry(text, "fields")) {
    const auto type = file_type_of_name(text_entry(field, "type"));
    if (!type) throw Contradiction("a field has an unknown type");
    manifest.fields.push_back({text_entry(field, "name"), *type, integers_entry(field, "sample_shape"),
                               field.contains(kUnit) ? text_entry(field, kUnit) : ""});
    if (!possible_shape(manifest.fields.back().sample_shape)) throw Contradiction("a field has an impossible shape");
    if (!field.contains("role")) continue;
    const std::string role = text_entry(field, "role");
    if (role != kInput && role != kTarget) throw Contradiction("the role of a field is neither input nor target");
    manifest.details.push_back({.role = role == kInput ? FieldRole::input : FieldRole::target,
                                .value_min = real_entry(field, "value_min"),
                                .value_max = real_entry(field, "value_max"),
                                .mean = real_entry(field, "mean"),
                                .standard_deviation = real_entry(field, "standard_deviation")});
  }
  if (!manifest.details.empty()) {
    if (manifest.details.size() != manifest.fields.size()) throw Contradiction("not all of its fields have a role");
    put_in_order(manifest);
  }
  if (text.contains(shard_attribute::kIgnoredLabel)) {
    manifest.ignored_label = integer_entry(text, shard_attribute::kIgnoredLabel);
    if (manifest.labels != Labels::classes || manifest.fields.size() < 2 || manifest.fields[1].elements() == 1) {
      throw Contradiction("its entry ignored_label is for masks, and there are none");
    }
  }
  if (text.contains(kTokensName)) manifest.tokens = token_info_from_json(to_text(text.at(kTokensName)));
  check_fields(manifest);
  if (text.contains(kTable)) {
    manifest.table = table_from_json(to_text(text.at(kTable)));
    check_table(manifest);
  }
  if (text.contains(kIdName)) {
    const json& id = entry(text, kIdName);
    manifest.id = SampleId{.name = text_entry(id, "name"), .bytes = integer_entry(id, "bytes")};
    if (!possible_shape({manifest.id->bytes})) throw Contradiction("its names of samples have an impossible length");
  }
  if ((manifest.labels == Labels::classes) != (manifest.classes > 0)) {
    throw Contradiction("its labels and its number of classes contradict each other");
  }
  const std::int64_t all_classes = manifest.tokens ? manifest.tokens->vocabulary : manifest.classes;
  if (manifest.class_names.empty() && !plausible_classes(all_classes, manifest.samples)) {
    throw Contradiction(fmt::format("{} classes of {} samples cannot be meant", all_classes, manifest.samples));
  }
  std::int64_t first = 0;
  for (const json& entry : list_entry(text, "shards")) {
    const bool several = manifest.has_several_fields();
    ManifestShard shard{.file = text_entry(entry, "file"),
                        .first = integer_entry(entry, "first"),
                        .count = integer_entry(entry, "count"),
                        .bytes = static_cast<std::uint64_t>(integer_entry(entry, "bytes")),
                        .checksum_x = several ? "" : text_entry(entry, "xxh3_64_x"),
                        .checksum_y = several ? "" : text_entry(entry, "xxh3_64_y"),
                        .checksum_id = manifest.id ? text_entry(entry, "xxh3_64_id") : ""};
    if (several) take_checksums(lockstep::io::entry(entry, "xxh3_64"), manifest, shard);
    if (shard.file.empty() || shard.file.find('/') != std::string::npos) {
      throw Contradiction(fmt::format("\"{}\" is no file name within the folder", shard.file));
    }
    if (shard.first != first || shard.count < 1 || shard.count > manifest.samples - first) {
      throw Contradiction(fmt::format("{} does not follow the shard before it", shard.file));
    }
    first += shard.count;
    manifest.shards.push_back(shard);
  }
  if (first != manifest.samples || first == 0) {
    throw Contradiction(fmt::format("its shards hold {} samples, its entry samples says {}", first, manifest.samples));
  }
  return manifest;
}

}  // namespace

std::vector<std::string> ShardManifest::names(FieldRole role) const {
  std::vector<std::string> all;
  for (std::size_t f = 0; f < details.size(); ++f) {
    if (details[f].role == role) all.push_back(fields[f].name);
  }
  return all;
}

const char* name_of(Labels labels) noexcept {
  switch (labels) {
    case Labels::none:
      return "none";
    case Labels::classes:
      return "classes";
    case Labels::targets:
      return "targets";
  }
  return "";
}

std::optional<Labels> labels_of_name(std::string_view name) noexcept {
  for (const Labels labels : kLabelKinds) {
    if (name == name_of(labels)) return labels;
  }
  return std::nullopt;
}

bool plausible_classes(std::int64_t classes, std::int64_t samples) noexcept {
  constexpr std::int64_t kAlwaysBelieved = std::int64_t{1} << 20;
  return classes <= std::max(kAlwaysBelieved, samples);
}

std::optional<FileType> file_type_of_name(std::string_view name) noexcept {
  for (int code = 0; code < static_cast<int>(FileType::other); ++code) {
    if (name == name_of(static_cast<FileType>(code))) return static_cast<FileType>(code);
  }
  return std::nullopt;
}

void write_manifest(const std::filesystem::path& folder, const ShardManifest& manifest) {
  const std::filesystem::path file = folder / kManifestName;
  std::string text;
  try {
    json entries = as_json(manifest);
    entries["checksum"] = checksum_of(entries);
    text = to_text(entries, 2);
  } catch (const FileError& error) {
    throw FileError(fmt::format("{}: cannot be written: {}", file.string(), error.what()));
  }
  replace_file(file, text + "\n");
}

ShardManifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kManifestName;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw FileError(fmt::format("{}: cannot open it", file.string()));
  const std::string content{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  try {
    const json text = parse_json(content);
    if (text_entry(text, "format") != kFormat) throw Contradiction("it is not a manifest of lockstep shards");
    const auto version = integer_entry(text, "schema_version");
    if (version > kShardSchemaVersion) {
      throw Contradiction(
          fmt::format("it was written with schema version {}, this program knows up to {}; use a newer "
                      "lockstep or pack again",
                      version, kShardSchemaVersion));
    }
    if (text.contains("checksum") && text_entry(text, "checksum") != checksum_of(text)) {
      throw Contradiction("it does not match its own checksum: damaged, or edited (then remove its entry checksum)");
    }
    return from_json(text);
  } catch (const FileError& error) {
    throw FileError(fmt::format("{}: is damaged: {}; copy the folder or pack it again", file.string(), error.what()));
  } catch (const Contradiction& error) {
    throw FileError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

std::string shard_file_name(std::int64_t index) { return fmt::format("shard-{:05}.h5", index); }

bool is_shard_folder(const std::filesystem::path& folder) {
  if (!std::filesystem::is_regular_file(folder / kManifestName)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool shard = name.starts_with("shard-") && name.ends_with(".h5");
    if (!entry.is_regular_file() || (name != kManifestName && !shard)) return false;
  }
  return true;
}

}  // namespace lockstep::io
