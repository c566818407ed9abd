#include "app/pack/table_encoding.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/data/open_dataset.hpp"
#include "app/engine/chosen_checkpoint.hpp"
#include "io/files/file_error.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::app {

namespace {

io::TableEncoding encoding_of(std::optional<io::TableSchema> table, io::Labels labels, std::int64_t classes,
                              std::vector<std::string> class_names, const std::filesystem::path& path) {
  if (!table) {
    throw io::FileError(fmt::format(
        "{}: knows no names of columns: it comes from no table, or an older version made it; pack the table again",
        path.string()));
  }
  return {.table = std::move(*table),
          .labels_are_classes = labels == io::Labels::classes,
          .classes = classes,
          .class_names = std::move(class_names),
          .from = path.string()};
}

}  // namespace

io::TableEncoding read_table_encoding(const std::filesystem::path& path) {
  for (const std::filesystem::path& folder : {path, path / io::kTrainName}) {
    if (!is_packed_data(folder)) continue;
    io::ShardManifest manifest = io::read_manifest(folder);
    return encoding_of(std::move(manifest.table), manifest.labels, manifest.classes, std::move(manifest.class_names),
                       path);
  }
  const ChosenCheckpoint chosen = read_chosen_checkpoint({.path = path});
  const std::string& text = chosen.checkpoint.record.data_description;
  io::DataDescription description;
  if (!text.empty()) description = io::data_description_from_json(text);
  return encoding_of(std::move(description.table), description.labels, description.classes,
                     std::move(description.class_names), path);
}

}  // namespace lockstep::app
