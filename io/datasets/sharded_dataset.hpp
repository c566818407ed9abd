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
#include "io/shards/target_values.hpp"

namespace lockstep::io {

/// The order of the extents of a sample that has three.
enum class Layout {
  automatic,       ///< channels first where the first extent is 1, 3 or 4 and the others are larger
  channels_first,  ///< [channels, height, width], delivered as [height, width, channels]
  channels_last,
};

struct DatasetOptions {
  std::filesystem::path path;  ///< a shard folder, a folder of .h5/.hdf5 files, or one such file
  std::string x = "x";         ///< dataset names, for files made by others
  std::string y = "y";
  std::string weight = {};  ///< name of a data set beside them with a number of 0 or more for each sample; "": none
  Unlabelled unlabelled = Unlabelled::refused;  ///< files made by others that have no y
  Gaps gaps = {};                               ///< likewise: numbers that nobody has given
  Layout layout = Layout::automatic;
  /// Of files made by others; rows of zeros with a single 1 are classes, too.
  LabelMeaning labels = LabelMeaning::automatic;
  bool wide_targets = false;  ///< targets that float32 may not hold (float64, integers of 32, 64 bits) stay float64
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
  FileType y_type() const noexcept override;
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override;
  bool has_weights() const noexcept override;
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override;
  /// Tells whether any number is missing in x, or in y, of samples from `first` on, all in one shard.
  struct MissingRows {
    std::vector<bool> x, y;
  };
  MissingRows missing(std::int64_t first, std::int64_t samples) const;
  std::vector<std::int64_t> shard_counts() const override;
  std::size_t stored_bytes() const noexcept override;
  std::int64_t block_multiple() const noexcept override;
  std::size_t cache_bytes() const noexcept override;
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;
  std::uint64_t verify(int part, int parts) const override;
  void check_unchanged(int part, int parts) override;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace lockstep::io
