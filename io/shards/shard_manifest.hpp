/// \file
/// manifest.json of a shard folder, and the names and attributes of its files (shard_schema.md).
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

/// The newest that is read. Samples are still written as version 1, which older programs know; corpora of tokens as 2.
inline constexpr std::int64_t kShardSchemaVersion = 2;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kTokensName = "tokens";  ///< the dataset of a corpus, and the manifest's entry about it

/// Attributes of a shard file's root group. Its datasets have kChecksumAttribute.
namespace shard_attribute {
inline constexpr const char* kVersion = "lockstep_schema_version";
inline constexpr const char* kFirst = "first";
inline constexpr const char* kCount = "count";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kClasses = "classes";
inline constexpr const char* kClassNames = "class_names";
inline constexpr const char* kValueMin = "value_min";
inline constexpr const char* kValueMax = "value_max";
}  // namespace shard_attribute

/// Values of the attribute and the manifest entry "labels".
enum class Labels { none, classes, targets };
const char* name_of(Labels labels) noexcept;
std::optional<Labels> labels_of_name(std::string_view name) noexcept;
std::optional<FileType> file_type_of_name(std::string_view name) noexcept;

/// Whether labels in [0, classes) can be meant: a part of a large set may lack most of its classes, but labels that are
/// damaged, or no labels, are mostly far beyond. As many classes as samples, or 2^20, are believed. Of tokens likewise.
bool plausible_classes(std::int64_t classes, std::int64_t samples) noexcept;

struct ManifestShard {
  std::string file;  ///< name within the folder
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;             ///< of the file
  std::string checksum_x, checksum_y;  ///< of a corpus: of its tokens, and nothing
  std::string checksum_id = {};        ///< of the names of the samples, where they have some
};

struct ShardManifest {
  std::int64_t samples = 0;   ///< of a corpus: tokens
  std::vector<Field> fields;  ///< x; x and y; x, y and weight; or tokens alone
  Labels labels = Labels::none;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  TargetValues target_values = TargetValues::any;
  double value_min = 0, value_max = 1;
  double mean = 0, standard_deviation = 1;
  std::string source;
  std::optional<TokenInfo> tokens;   ///< set: a corpus
  std::optional<TableSchema> table;  ///< set: x are the columns of a table
  std::optional<SampleId> id;        ///< set: samples have names, in a dataset of bytes
  std::vector<ManifestShard> shards;

  std::int64_t schema_version() const noexcept { return tokens ? 2 : 1; }
};

/// Durable, with a checksum over everything else in it.
void write_manifest(const std::filesystem::path& folder, const ShardManifest& manifest);
/// Throws FileError: unreadable, not JSON, an entry missing or of the wrong kind, counts that contradict each other, a
/// newer schema, a checksum that does not match.
ShardManifest read_manifest(const std::filesystem::path& folder);

/// shard-00003.h5
std::string shard_file_name(std::int64_t index);
/// Nothing in the folder but a manifest and shard files: ours to replace. An empty folder is not.
bool is_shard_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
