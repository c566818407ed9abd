/// \file
/// manifest.json of a shard folder, and the names and attributes of its files (shard_schema.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/sample_source.hpp"

namespace lockstep::io {

inline constexpr std::int64_t kShardSchemaVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

/// Attributes of a shard file's root group and (checksum) of its datasets.
namespace shard_attribute {
inline constexpr const char* kVersion = "lockstep_schema_version";
inline constexpr const char* kFirst = "first";
inline constexpr const char* kCount = "count";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kClasses = "classes";
inline constexpr const char* kClassNames = "class_names";
inline constexpr const char* kValueMin = "value_min";
inline constexpr const char* kValueMax = "value_max";
inline constexpr const char* kChecksum = "xxh3_64";
}  // namespace shard_attribute

/// Values of the attribute and the manifest entry "labels".
enum class Labels { none, classes, targets };
const char* name_of(Labels labels) noexcept;
std::optional<Labels> labels_of_name(std::string_view name) noexcept;
std::optional<FileType> file_type_of_name(std::string_view name) noexcept;

struct ManifestShard {
  std::string file;  ///< name within the folder
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;  ///< of the file
  std::string checksum_x, checksum_y;
};

struct ShardManifest {
  std::int64_t samples = 0;
  std::vector<Field> fields;
  Labels labels = Labels::none;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  double value_min = 0, value_max = 1;
  double mean = 0, standard_deviation = 1;
  std::string source;
  std::vector<ManifestShard> shards;
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
