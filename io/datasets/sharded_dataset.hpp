/// \file
/// Samples of a shard folder (or of plain HDF5 files made by others), read by index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "io/datasets/shared_shards.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/shard_file.hpp"

namespace lockstep::io {

/// The order of the extents of a sample that has three.
enum class Layout {
  automatic,       ///< channels first where the first extent is 1, 3 or 4 and the others are larger
  channels_first,  ///< [channels, height, width], delivered as [height, width, channels]
  channels_last,
};

/// What rows of zeros with a single 1 are.
enum class OneHot { classes, numbers };

struct DatasetOptions {
  std::filesystem::path path;  ///< a shard folder, a folder of .h5/.hdf5 files, or one such file
  std::string x = "x";         ///< dataset names, for files made by others
  std::string y = "y";
  Unlabelled unlabelled = Unlabelled::refused;  ///< files made by others that have no y
  Layout layout = Layout::automatic;
  OneHot one_hot = OneHot::classes;
  IoDeadline* deadline = nullptr;             ///< of opening and reading; it outlives the dataset. nullptr: none
  std::shared_ptr<SharedShards> shared = {};  ///< path's, opened by all ranks together; nullptr: opened here
};

class ShardedDataset final : public Dataset {
 public:
  /// Opens and validates every file (of shared ones, when it is read): schema, shapes, types, counts against the
  /// manifest and the siblings, file sizes. Throws FileError naming the file and what to do.
  explicit ShardedDataset(const DatasetOptions& options);
  ~ShardedDataset() override;

  const DatasetInfo& info() const noexcept override;
  const std::vector<ShardInfo>& shards() const noexcept override;
  const std::vector<std::string>& warnings() const noexcept override;
  std::string fingerprint() const override;
  FileType x_type() const noexcept override;
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  void read_y(std::span<const std::int64_t> samples, std::span<std::byte> y) const override;
  std::vector<std::int64_t> shard_counts() const override;
  std::size_t stored_bytes() const noexcept override;
  std::int64_t block_multiple() const noexcept override;
  std::size_t cache_bytes() const noexcept override;
  void will_need(std::int64_t first, std::int64_t count) const noexcept override;
  std::uint64_t verify(int part, int parts) const override;
  void check_unchanged(int part, int parts) override;

 private:
  template <class Use>
  void each_run(std::span<const std::int64_t> samples, const Use& use) const;

  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace lockstep::io
