/// \file
/// The files of a dataset, opened and compared with each other and with their manifest: rows by global index,
/// checksums, read-ahead. Samples and corpora share this class. Internal to io.
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

/// A canonical path: equal for the same file.
std::filesystem::path same_path(const std::filesystem::path& file);

/// True if the folder has a manifest, made by `lockstep pack`. False for a missing folder.
bool is_packed(const std::filesystem::path& path);

/// Properties of a set's storage that all readers need.
struct ShardLayouts {
  struct Slow {
    std::size_t shard = 0, field = 0;
    std::string why = {};  ///< reason for users; "": not worth a warning
  };
  std::int64_t block_multiple = 1;  ///< ShardSet::block_multiple()
  std::size_t in_blocks = 0;        ///< bytes that cannot be read by file offset
  std::vector<Slow> slow;           ///< fields that cannot be read by offset; ascending by shard
};

class ShardSet {
 public:
  /// The shards that a manifest lists. Throws FileError if a shard is missing or differs from the manifest.
  ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline = nullptr);
  /// Opens only the shards part, part + parts, ... at first; other processes open the rest. layouts() describes these,
  /// until complete() receives the layouts of all. Every other file is opened, and compared with the manifest, when it
  /// is read.
  ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline, int part,
           int parts);
  /// A folder of other programs' HDF5 files, or one such file; an empty y: no labels. Files whose data appear in other
  /// files of the folder, by links or virtual datasets, are left out: their samples would occur twice. Throws
  /// FileError: no files, files that differ from each other.
  ShardSet(const std::filesystem::path& path, const std::string& x, const std::string& y,
           IoDeadline* deadline = nullptr, Unlabelled unlabelled = Unlabelled::refused, Gaps gaps = {});

  const ShardLayouts& layouts() const noexcept { return layouts_; }
  void complete(ShardLayouts layouts);

  std::size_t size() const noexcept { return shards_.size(); }
  const std::filesystem::path& path(std::size_t shard) const { return shards_[shard].file; }
  /// The file of a shard, opened if necessary. Throws FileError. Thread-safe.
  const ShardFile& file(std::size_t shard) const;
  /// True if this process has opened all files.
  bool all_open() const noexcept { return !manifest_; }
  const std::vector<ShardInfo>& shards() const noexcept { return shards_; }
  std::vector<std::string>& warnings() noexcept { return warnings_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  /// Names of classes whose labels are texts, in the order of their numbers.
  const std::vector<std::string>& text_classes() const noexcept { return text_classes_; }
  /// Number of rows in all files.
  std::int64_t rows() const noexcept { return rows_; }
  /// Chunked data is read fastest in blocks that are multiples of this many rows of x.
  std::int64_t block_multiple() const noexcept { return layouts_.block_multiple; }
  /// Largest size of the cache of blocks: 0 if everything is read by file offset.
  std::size_t cache_bytes() const noexcept;

  /// The shard that holds a row, by binary search. Throws std::invalid_argument if no shard holds it.
  std::size_t shard_of(std::int64_t row) const;
  /// Reads elements as stored, in native byte order; data that need the library go through a cache. `first` counts
  /// within the shard. Thread-safe.
  void read(std::size_t shard, std::size_t field, std::int64_t first, std::int64_t rows,
            std::span<std::byte> out) const;
  /// Asks the kernel to read rows [first, first + count) of the fields ahead, counted over all shards.
  void will_need(std::span<const std::size_t> fields, std::int64_t first, std::int64_t count) const noexcept;

  using RowsWork = std::function<void(std::int64_t first, std::span<const std::byte> rows)>;
  /// Calls `work` with every row of a field of one shard, in blocks of about a mebibyte, in order.
  void stream(std::size_t shard, std::size_t field, const RowsWork& work) const;
  /// Recomputes the checksums of shards part, part + parts, ..., and throws FileError at the first that differs.
  /// `look`, if given, receives every block. Returns the bytes read; without `look`, fields without checksums are not
  /// read.
  using BlockWork =
      std::function<void(std::size_t shard, std::size_t field, std::int64_t first, std::span<const std::byte> rows)>;
  std::uint64_t verify(int part, int parts, const BlockWork& look) const;
  /// Throws FileError at the first of shards part, part + parts, ... that has changed since it was opened. Costs one
  /// stat per shard. A shard with checksums whose inode alone has a new time is read once.
  void check_unchanged(int part, int parts);
  /// One line per file: name, rows, bytes, checksums. For the fingerprint.
  std::string identity() const;

 private:
  /// A file that may not be open yet.
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
  void note_units(const ShardFile& file);
  void number_texts();
  void explain_layouts();

  std::optional<ShardManifest> manifest_;  ///< set: files are opened when they are read
  IoDeadline* deadline_ = nullptr;
  mutable std::deque<Slot> slots_;
  ShardLayouts layouts_;
  std::vector<ShardInfo> shards_;
  std::vector<std::int64_t> firsts_;  ///< first row of each shard, for the search of a row's shard
  std::vector<std::string> warnings_, text_classes_;
  std::int64_t rows_ = 0;
  struct KnownUnit {
    std::string unit, file;
  };
  std::vector<KnownUnit> units_;  ///< unit of each field, and the first file that says it
  bool units_differ_ = false;     ///< between files, which a warning says
  mutable BlockCache cache_;
};

}  // namespace lockstep::io
