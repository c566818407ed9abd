#include "io/shards/shard_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

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

/// A folder that becomes the shard folder, or is removed with all its content.
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
    std::filesystem::permissions(path_, std::filesystem::perms(0755), error);  // mkdtemp's 0700 excludes colleagues
  }
  ~TemporarySibling() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporarySibling(const TemporarySibling&) = delete;
  TemporarySibling& operator=(const TemporarySibling&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Moves the new folder to `folder`; the old content is removed with this object.
  void take_place_of(const std::filesystem::path& folder) {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
      // The target is missing, empty, or on a file system that cannot exchange: move an old folder away first.
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

/// True for folders that may be replaced: shards, or the folders of a split.
bool is_packed_folder(const std::filesystem::path& folder) {
  if (is_shard_folder(folder)) return true;
  int parts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if ((name != kTrainName && name != kValidationName && name != kTestName) || entry.is_symlink() ||
        !entry.is_directory() || !is_shard_folder(entry.path())) {
      return false;
    }
    ++parts;
  }
  return parts >= 2;
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

/// The complete path, without a trailing slash.
std::filesystem::path folder_of(const ShardWriterOptions& options) {
  if (options.folder.empty()) throw std::invalid_argument("shards need the name of a folder");
  std::filesystem::path folder = std::filesystem::absolute(options.folder).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

/// A temporary folder that process 0 creates, known to all.
class SharedTemporary {
 public:
  SharedTemporary(PackPeers& peers, const ShardWriterOptions& options) : options_(options), peers_(peers) {
    peers_.all_succeed([&] {
      folder_ = folder_of(options_);
      if (peers_.rank() != 0) return;
      require_replaceable(folder_, options_.overwrite);
      own_.emplace(folder_);
    });
    path_ = peers_.gather(own_ ? own_->path().string() : std::string()).front();
  }

  /// Path of a folder of shards in it.
  std::filesystem::path part(const char* name) {
    const std::filesystem::path folder = path_ / name;
    peers_.all_succeed([&] {
      std::error_code error;
      if (own_) std::filesystem::create_directory(folder, error);
      if (error) throw FileError(fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
    });
    return folder;
  }
  const std::filesystem::path& path() const noexcept { return path_; }
  bool is_ours() const noexcept { return own_.has_value(); }
  /// Moves the folder to its final name; process 0 does the work.
  void take_its_place() {
    require_replaceable(folder_, options_.overwrite);  // it may have appeared in the meantime
    own_->take_place_of(folder_);
  }

 private:
  const ShardWriterOptions& options_;
  PackPeers& peers_;
  std::filesystem::path folder_, path_;
  std::optional<TemporarySibling> own_;
};

/// Writes the shards of all packers, then the manifests. All processes share the work of each packer. Process 0 returns
/// the summaries.
std::vector<PackSummary> pack_together(std::span<ShardPacker* const> packers, PackPeers& peers,
                                       SharedTemporary& temporary) {
  for (ShardPacker* const packer : packers) {
    peers.all_succeed([&] { packer->write(peers.rank(), peers.size()); });
    const std::vector<std::string> found = peers.gather(packer->found());
    peers.all_succeed([&] { packer->know(found); });
  }
  LabelsOfWhole labels = packers.front()->labels();
  for (ShardPacker* const packer : packers.subspan(1)) labels = together(labels, packer->labels());
  std::vector<PackSummary> summaries(packers.size());
  std::vector<std::vector<std::string>> described;
  for (ShardPacker* const packer : packers) {
    std::string own;
    peers.all_succeed([&] { own = packer->describe(labels); });
    described.push_back(peers.gather(std::move(own)));
  }
  peers.all_succeed([&] {
    if (!temporary.is_ours()) return;
    for (std::size_t i = 0; i < packers.size(); ++i) summaries[i] = packers[i]->finish(described[i]);
    sync_folder(temporary.path());
    temporary.take_its_place();
  });
  return summaries;
}

}  // namespace

PackSummary write_shards(SampleSource& source, const ShardWriterOptions& options, const PackProgress& progress) {
  PackPeers alone;
  PackPeers& peers = options.peers != nullptr ? *options.peers : alone;
  SharedTemporary temporary(peers, options);
  std::optional<ShardPacker> packer;
  peers.all_succeed([&] { packer.emplace(source, options.shards, options.classes, temporary.path(), progress); });
  ShardPacker* const all[] = {&*packer};
  return pack_together(all, peers, temporary).front();
}

std::vector<PackSummary> write_parts(const OpenParts& open, const ShardWriterOptions& options,
                                     const PackProgress& progress) {
  PackPeers alone;
  PackPeers& peers = options.peers != nullptr ? *options.peers : alone;
  std::vector<NamedSource> parts;
  peers.all_succeed([&] {
    if (peers.rank() == 0) require_replaceable(folder_of(options), options.overwrite);
    parts = open();
  });
  std::int64_t all = 0;
  for (const NamedSource& part : parts) all += part.source->count();
  // Samples of this process. The number of samples of later parts is estimated from the first part.
  std::vector<std::int64_t> done(parts.size()), of(parts.size(), -1);
  const auto report = [&] {
    std::int64_t own = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      own += of[i] >= 0 ? of[i] : of[0] * parts[i].source->count() / parts[0].source->count();
    }
    if (progress) progress(std::accumulate(done.begin(), done.end(), std::int64_t{0}), own);
  };

  SharedTemporary temporary(peers, options);
  std::deque<PackProgress> of_parts;  // must outlive their packers
  std::deque<ShardPacker> packers;
  std::vector<ShardPacker*> pointers;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::filesystem::path folder = temporary.part(parts[i].name.c_str());
    const std::int64_t share = options.shards * parts[i].source->count() / all;
    const std::int64_t shards = i == 0 ? options.shards : std::max<std::int64_t>(1, share);
    const PackProgress& of_part = of_parts.emplace_back([&, i](std::int64_t done_now, std::int64_t of_now) {
      done[i] = done_now, of[i] = of_now;
      report();
    });
    peers.all_succeed([&] { packers.emplace_back(*parts[i].source, shards, options.classes, folder, of_part); });
    pointers.push_back(&packers.back());
  }
  return pack_together(pointers, peers, temporary);
}

SplitSummary write_split(const OpenSource& open, const SplitOptions& split, const ShardWriterOptions& options,
                         const PackProgress& progress) {
  const OpenParts open_parts = [&] {
    std::vector<NamedSource> parts;
    parts.push_back({kTrainName, make_part(open(), SplitPart::train, split)});
    parts.push_back({kValidationName, make_part(open(), SplitPart::validation, split)});
    return parts;
  };
  const std::vector<PackSummary> summaries = write_parts(open_parts, options, progress);
  return {.train = summaries[0], .validation = summaries[1]};
}

}  // namespace lockstep::io
