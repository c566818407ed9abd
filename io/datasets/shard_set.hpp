/// \file
/// The files of a dataset, opened and compared with each other and with their manifest: rows by global index,
/// checksums, reading ahead. What samples and corpora have in common. Internal to io.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/block_cache.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/shard_file.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {

/// The HDF5 files of a folder, in the order of their names; or `path` itself. Throws FileError where there is none.
std::vector<std::filesystem::path> hdf5_files_in(const std::filesystem::path& path);

/// A path that is equal for equal files, whatever leads to them.
std::filesystem::path same_path(const std::filesystem::path& file);

/// Whether the folder has a manifest: was made by `lockstep pack`. False for what does not exist.
bool is_packed(const std::filesystem::path& path);

/// How the files of a set are stored, as far as all who read it must know.
struct ShardLayouts {
  struct Slow {
    std::size_t shard = 0, field = 0;
    std::string why = {};  ///< for the user; "": a field of the shard that nobody has to hear of
  };
  std::int64_t block_multiple = 1;  ///< ShardSet::block_multiple()
  std::size_t in_blocks = 0;        ///< bytes that cannot be read by offset
  std::vector<Slow> slow;           ///< fields that cannot; ascending by shard
};

class ShardSet {
 public:
  /// The shards that a manifest lists. Throws FileError: a shard is missing, or is not as the manifest says.
  ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline = nullptr);
  /// Of those only part, part + parts, ... for now: others open the rest. layouts() is of these, until complete() is
  /// told of all. A file that nobody has opened here is opened, and compared with the manifest, when it is read.
  ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline, int part,
           int parts);
  /// A folder of HDF5 files made by others, or one such file; an empty y: no labels. Files of the folder that others of
  /// it take their data from, by links or virtual datasets, are left out: their samples would come twice. Throws
  /// FileError: nothing there, files that differ from each other.
  ShardSet(const std::filesystem::path& path, const std::string& x, const std::string& y,
           IoDeadline* deadline = nullptr, Unlabelled unlabelled = Unlabelled::refused, Gaps gaps = {});

  const ShardLayouts& layouts() const noexcept { return layouts_; }
  void complete(ShardLayouts layouts);

  std::size_t size() const noexcept { return shards_.size(); }
  const std::filesystem::path& path(std::size_t shard) const { return shards_[shard].file; }
  /// Opens it if need be. Throws FileError. Thread-safe.
  const ShardFile& file(std::size_t shard) const;
  /// All files have been opened here.
  bool all_open() const noexcept { return !manifest_; }
  const std::vector<ShardInfo>& shards() const noexcept { return shards_; }
  std::vector<std::string>& warnings() noexcept { return warnings_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  /// Of labels that are texts: their names, in the order of their numbers.
  const std::vector<std::string>& text_classes() const noexcept { return text_classes_; }
  /// In all files.
  std::int64_t rows() const noexcept { return rows_; }
  /// Chunked data is best read in blocks that are multiples of this many rows of x.
  std::int64_t block_multiple() const noexcept { return layouts_.block_multiple; }
  /// Most bytes that the cache of blocks takes: none where all is read by offset.
  std::size_t cache_bytes() const noexcept;

  /// The shard that holds a row, by binary search. Throws std::invalid_argument where there is none.
  std::size_t shard_of(std::int64_t row) const;
  /// Elements as stored, in native byte order; through a cache where the library has to be asked. `first` counts within
  /// the shard. Thread-safe.
  void read(std::size_t shard, std::size_t field, std::int64_t first, std::int64_t rows,
            std::span<std::byte> out) const;
  /// Asks the kernel for rows [first, first + count) of x, counted over all shards.
  void will_need(std::int64_t first, std::int64_t count) const noexcept;

  using RowsWork = std::function<void(std::int64_t first, std::span<const std::byte> rows)>;
  /// Calls `work` with every row of a field of one shard, in blocks of about a mebibyte, in order.
  void stream(std::size_t shard, std::size_t field, const RowsWork& work) const;
  /// Recomputes the checksums of shards part, part + parts, ..., and throws FileError at the first that differs; `look`
  /// sees every block, where one is given. Returns the bytes read: without `look`, fields that have no checksum are
  /// not.
  using BlockWork =
      std::function<void(std::size_t shard, std::size_t field, std::int64_t first, std::span<const std::byte> rows)>;
  std::uint64_t verify(int part, int parts, const BlockWork& look) const;
  /// Throws FileError at the first of shards part, part + parts, ... that has changed since it was opened. Costs one
  /// stat a shard; reads a shard whose inode alone has a new time, once, where it has checksums.
  void check_unchanged(int part, int parts);
  /// One line for each file: name, rows, bytes, checksums. For the fingerprint.
  std::string identity() const;

 private:
  /// A file, once it has been opened.
  struct Slot {
    std::mutex opening;
    std::atomic<bool> open{false};
    std::optional<ShardFile> file;
  };
  std::string path_text(std::size_t shard) const { return path(shard).string(); }
  void open(std::size_t shard, ShardFile file) const;
  ShardFile open_listed(std::size_t shard) const;
  void list(const std::filesystem::path& file, std::int64_t count, std::uint64_t bytes, std::string checksum_x,
            std::string checksum_y);
  void note_layout(std::size_t shard);
  void number_texts();
  void explain_layouts();

  std::optional<ShardManifest> manifest_;  ///< where files are opened when they are read
  IoDeadline* deadline_ = nullptr;
  mutable std::deque<Slot> slots_;
  ShardLayouts layouts_;
  std::vector<ShardInfo> shards_;
  std::vector<std::int64_t> firsts_;  ///< of each shard: the search for a row's shard
  std::vector<std::string> warnings_, text_classes_;
  std::int64_t rows_ = 0;
  mutable BlockCache cache_;
};

}  // namespace lockstep::io
