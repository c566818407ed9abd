#include "app/info/info.hpp"

#include <fmt/format.h>

#include "app/data/open_dataset.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/datasets/hdf5_listing.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  return fs::exists(folder / "config.ini") || fs::is_directory(folder / "checkpoints");
}

bool holds_data(const fs::path& folder) {
  if (fs::exists(folder / "manifest.json")) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (io::has_hdf5_name(entry.path())) return true;
  }
  return false;
}

/// Describes data with or without labels, unless the user names some.
bool describe_data_at(Console& console, const fs::path& path, const InfoOptions& options) {
  const auto unlabelled = options.y == InfoOptions{}.y ? io::Unlabelled::accepted : io::Unlabelled::refused;
  const io::Gaps gaps{.accept_unwritten = options.allow_fill, .deliver_missing = true};
  inspect_data({.x = options.x, .y = options.y, .unlabelled = unlabelled, .gaps = gaps}, path);
  return describe_dataset(
      console, {.path = path, .x = options.x, .y = options.y, .unlabelled = unlabelled, .gaps = gaps}, options.verify);
}

bool is_table(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".csv") || name.ends_with(".tsv") || name.ends_with(".csv.gz") || name.ends_with(".tsv.gz");
}

bool describe_folder(Console& console, const InfoOptions& options) {
  const fs::path& folder = options.path;
  const bool verify = options.verify;
  if (is_run(folder)) return describe_run(console, folder, verify);
  if (!io::list_checkpoints(folder).empty()) return describe_checkpoints(console, folder, verify);
  const auto describe = [&](const fs::path& path) { return describe_data_at(console, path, options); };
  if (holds_data(folder)) return describe(folder);
  // A dataset in parts, as `train --data` accepts it.
  bool found = false, sound = true;
  for (const char* part : {"train", "validation", "test"}) {
    if (!fs::is_directory(folder / part) || !holds_data(folder / part)) continue;
    if (found) console.info("");
    found = true;
    sound = describe(folder / part) && sound;
  }
  if (!found) {
    throw io::FileError(
        fmt::format("{} is neither a shard folder (manifest.json, .h5 files) nor a run folder (config.ini, "
                    "checkpoints/)",
                    folder.string()));
  }
  return sound;
}

}  // namespace

int run_info(const InfoOptions& options) {
  Console console(true);
  std::error_code error;
  const fs::file_status status = fs::status(options.path, error);
  bool sound = false;
  if (!fs::exists(status)) {
    throw io::FileError(
        fmt::format("{}: {}", options.path.string(),
                    status.type() == fs::file_type::not_found ? "there is no such file or folder" : error.message()));
  }
  if (fs::is_directory(status)) {
    sound = describe_folder(console, options);
  } else if (options.network.source != nullptr) {
    describe_network_file(console, options);
    sound = true;
  } else if (is_table(options.path)) {
    describe_table_file(console, options.path);
    sound = true;
  } else {
    if (io::is_checkpoint(options.path)) {
      inspect_data({.x = options.x, .y = options.y}, options.path);
      sound = describe_checkpoint(console, options.path);
    } else {
      sound = describe_data_at(console, options.path, options);
    }
  }
  console.require_output();
  return sound ? 0 : 1;
}

}  // namespace lockstep::app
