/// \file
/// Reads and writes manifest.json of a shard folder; names and attributes of its files (shard_schema.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/shards/sample_source.hpp"
#include "io/shards/target_values.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

/// The newest schema version that is read. The oldest possible version is written, so that older programs can read it:
/// 1 for samples of one x and one y, 2 for corpora of tokens, 3 for several inputs or targets.
inline constexpr std::int64_t kShardSchemaVersion = 3;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kTokensName = "tokens";  ///< dataset of a corpus, and its entry in the manifest

/// Attributes of a shard file's root group. Its datasets have kChecksumAttribute.
namespace shard_attribute {
inline constexpr const char* kVersion = "lockstep_schema_version";
inline constexpr const char* kFirst = "first";
inline constexpr const char* kCount = "count";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kClasses = "classes";
inline constexpr const char* kClassNames = "class_names";
inline constexpr const char* kIgnoredLabel = "ignored_label";
inline constexpr const char* kValueMin = "value_min";
inline constexpr const char* kValueMax = "value_max";
}  // namespace shard_attribute

/// Values of the attribute and the manifest entry "labels".
enum class Labels { none, classes, targets };
const char* name_of(Labels labels) noexcept;
std::optional<Labels> labels_of_name(std::string_view name) noexcept;
std::optional<FileType> file_type_of_name(std::string_view name) noexcept;

/// True if labels in [0, classes) are plausible. A part of a large set may lack most of its classes, but damaged
/// labels, or numbers that are not labels, usually exceed all limits. Accepts as many classes as samples, and up to
/// 2^20. The same holds for tokens.
bool plausible_classes(std::int64_t classes, std::int64_t samples) noexcept;

struct ManifestShard {
  std::string file;  ///< name within the folder
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;                  ///< size of the file
  std::string checksum_x, checksum_y;       ///< for a corpus: checksum of its tokens, and ""
  std::string checksum_id = {};             ///< checksum of the samples' names, if they have names
  std::vector<std::string> checksums = {};  ///< one per field, if there are several inputs or targets
};

/// One of several inputs or targets.
struct FieldDetail {
  FieldRole role = FieldRole::input;
  double value_min = 0, value_max = 1;
  double mean = 0, standard_deviation = 1;
};

struct ShardManifest {
  std::int64_t samples = 0;   ///< for a corpus: number of tokens
  std::vector<Field> fields;  ///< x; x and y; x, y and weight; tokens alone; or as described by `details`
  /// One per field, if there are several inputs or targets, in the order of SampleSource::roles().
  std::vector<FieldDetail> details;
  Labels labels = Labels::none;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  /// Masks: the label of positions that belong to no class; nullopt: all positions have a class.
  std::optional<std::int64_t> ignored_label;
  TargetValues target_values = TargetValues::any;
  double value_min = 0, value_max = 1;
  double mean = 0, standard_deviation = 1;
  std::string source;
  std::optional<TokenInfo> tokens;   ///< set: a corpus
  std::optional<TableSchema> table;  ///< set: x has the columns of a table
  std::optional<SampleId> id;        ///< set: samples have names, in a dataset of bytes
  std::vector<ManifestShard> shards;

  bool has_several_fields() const noexcept { return !details.empty(); }
  std::int64_t schema_version() const noexcept { return tokens ? 2 : has_several_fields() ? 3 : 1; }
  /// Names of the fields with this role, in their order.
  std::vector<std::string> names(FieldRole role) const;
};

/// Writes durably, with a checksum over all other entries.
void write_manifest(const std::filesystem::path& folder, const ShardManifest& manifest);
/// Throws FileError: unreadable, not JSON, an entry missing or of the wrong kind, contradictory counts, a newer schema,
/// a checksum that does not match.
ShardManifest read_manifest(const std::filesystem::path& folder);

/// shard-00003.h5
std::string shard_file_name(std::int64_t index);
/// True if the folder holds only a manifest and shard files, so that it may be replaced. False for an empty folder.
bool is_shard_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
