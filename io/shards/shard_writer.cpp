#include "io/shards/shard_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include "io/files/durable_file.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_packer.hpp"
#include "io/shards/split_source.hpp"

namespace lockstep::io {
namespace {

/// The folder that becomes the shard folder, or goes away with everything in it.
class TemporarySibling {
 public:
  explicit TemporarySibling(const std::filesystem::path& folder) {
    const std::filesystem::path parent = folder.parent_path();
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    std::string name = (parent / fmt::format(".{}.packing-XXXXXX", folder.filename().string())).string();
    if (error || ::mkdtemp(name.data()) == nullptr) {
      throw FileError(fmt::format("{}: cannot write there: {}", parent.string(),
                                  error ? error.message() : std::generic_category().message(errno)));
    }
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0755), error);  // mkdtemp's 0700 shuts out colleagues
  }
  ~TemporarySibling() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporarySibling(const TemporarySibling&) = delete;
  TemporarySibling& operator=(const TemporarySibling&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Afterwards `folder` is the new one; what stood there goes away with this object.
  void take_place_of(const std::filesystem::path& folder) {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
      // Nothing there yet, an empty folder, or a file system that cannot exchange: then the old one steps aside first.
      const std::filesystem::path aside = path_.string() + ".old";
      std::error_code missing;
      std::filesystem::rename(folder, aside, missing);
      std::error_code error;
      std::filesystem::rename(path_, folder, error);
      if (error && !missing) std::filesystem::rename(aside, folder, missing);
      if (error) {
        throw FileError(
            fmt::format("{}: cannot rename the finished folder to it: {}", folder.string(), error.message()));
      }
      path_ = aside;
    }
    sync_folder(folder.parent_path());
  }

 private:
  std::filesystem::path path_;
};

/// Ours to replace: shards, or the two folders of a split.
bool is_packed_folder(const std::filesystem::path& folder) {
  if (is_shard_folder(folder)) return true;
  int parts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if ((name != kTrainName && name != kValidationName) || entry.is_symlink() || !entry.is_directory() ||
        !is_shard_folder(entry.path())) {
      return false;
    }
    ++parts;
  }
  return parts == 2;
}

void require_replaceable(const std::filesystem::path& folder, bool overwrite) {
  const auto status = std::filesystem::symlink_status(folder);
  if (!std::filesystem::exists(status)) return;
  if (std::filesystem::is_directory(status) && std::filesystem::is_empty(folder)) return;
  if (!overwrite) {
    throw FileError(
        fmt::format("{}: exists already; choose another folder, or --force to replace it", folder.string()));
  }
  if (!std::filesystem::is_directory(status) || !is_packed_folder(folder)) {
    throw FileError(
        fmt::format("{}: is not a folder of nothing but shards and their manifest, so --force does not "
                    "replace it; choose another folder",
                    folder.string()));
  }
}

/// Whole, without a trailing slash.
std::filesystem::path folder_of(const ShardWriterOptions& options) {
  if (options.folder.empty()) throw std::invalid_argument("shards need the name of a folder");
  std::filesystem::path folder = std::filesystem::absolute(options.folder).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

std::filesystem::path make_part_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw FileError(fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
  return folder;
}

}  // namespace

PackSummary write_shards(SampleSource& source, const ShardWriterOptions& options, const PackProgress& progress) {
  const std::filesystem::path folder = folder_of(options);
  require_replaceable(folder, options.overwrite);
  TemporarySibling temporary(folder);
  ShardPacker packer(source, options.shards, options.classes, temporary.path(), progress);
  packer.write();
  const PackSummary summary = packer.finish(packer.classes());
  require_replaceable(folder, options.overwrite);  // it may have come into being meanwhile
  temporary.take_place_of(folder);
  return summary;
}

SplitSummary write_split(const OpenSource& open, const SplitOptions& split, const ShardWriterOptions& options,
                         const PackProgress& progress) {
  const std::filesystem::path folder = folder_of(options);
  require_replaceable(folder, options.overwrite);
  const auto train = make_part(open(), SplitPart::train, split);
  const auto validation = make_part(open(), SplitPart::validation, split);
  const std::int64_t all = train->count() + validation->count();
  const std::int64_t validation_shards = std::max<std::int64_t>(1, options.shards * validation->count() / all);
  const auto from = [&](std::int64_t before) -> PackProgress {
    if (!progress) return {};
    return [&progress, before, all](std::int64_t done, std::int64_t) { progress(before + done, all); };
  };
  const PackProgress of_train = from(0);
  const PackProgress of_validation = from(train->count());

  TemporarySibling temporary(folder);
  ShardPacker train_packer(*train, options.shards, options.classes, make_part_folder(temporary.path() / kTrainName),
                           of_train);
  ShardPacker validation_packer(*validation, validation_shards, options.classes,
                                make_part_folder(temporary.path() / kValidationName), of_validation);
  train_packer.write();
  validation_packer.write();
  const std::int64_t classes = std::max(train_packer.classes(), validation_packer.classes());
  SplitSummary summary;
  summary.train = train_packer.finish(classes);
  summary.validation = validation_packer.finish(classes);
  sync_folder(temporary.path());
  require_replaceable(folder, options.overwrite);
  temporary.take_place_of(folder);
  return summary;
}

}  // namespace lockstep::io
