/// \file
/// Samples of a shard folder (or of other programs' HDF5 files), read by index.
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

/// Order of a sample's extents, if there are three.
enum class Layout {
  automatic,       ///< channels first if the first extent is 1, 3 or 4 and the others are larger
  channels_first,  ///< [channels, height, width], delivered as [height, width, channels]
  channels_last,
};

/// The order of one field's extents.
struct FieldLayout {
  std::string field;    ///< its name; "": the only field
  std::string letters;  ///< "nchw", "nhwc", "ncdhw", "ncl": n counts samples; c (channels) is first or last
  bool operator==(const FieldLayout&) const = default;
};
/// The fault in `letters`; empty if they are valid.
std::string layout_objection(std::string_view letters);

struct Layouts {
  Layouts(Layout of_images = Layout::automatic) : images(of_images) {}
  Layout images;                         ///< order of the fields that are not in `fields`
  std::vector<FieldLayout> fields = {};  ///< order of single fields
  bool operator==(const Layouts&) const = default;
};

struct DatasetOptions {
  std::filesystem::path path;  ///< a shard folder, a folder of .h5/.hdf5 files, or one such file
  /// Names of datasets in other programs' files, or of fields of shards; several names have commas between them
  /// (ShardFile). "x" and "y" stand for all fields of shards.
  std::string x = "x";
  std::string y = "y";
  /// Inputs and targets that the network uses, in its order. If the data have all of them, and x and y are not set,
  /// these are read; otherwise all fields are. In other programs' files they only determine the order.
  std::vector<std::string> wanted = {}, wanted_targets = {};
  std::string weight = {};                      ///< dataset with one number per sample, >= 0; "": none
  Unlabelled unlabelled = Unlabelled::refused;  ///< for other programs' files without y
  Gaps gaps = {};                               ///< for other programs' files with missing numbers
  Layouts layout = {};
  /// Meaning of labels in other programs' files. Rows of zeros with a single 1 also count as classes.
  LabelMeaning labels = LabelMeaning::automatic;
  /// Extents of a sample as the network reads it, channels included. A field to predict with as many extents has its
  /// channels last; with one less it has one channel. 0: images and volumes (read_extents()).
  std::size_t extents = 0;
  /// Masks: the label of positions that belong to no class; nullopt: as in the manifest.
  std::optional<std::int64_t> ignored_label = {};
  bool wide_targets =
      false;  ///< targets that float32 may not hold (float64, integers of 32 and 64 bits) become float64
  IoDeadline* deadline = nullptr;             ///< limit for opening and reading; outlives the dataset. nullptr: none
  std::shared_ptr<SharedShards> shared = {};  ///< shards of `path` that all ranks opened together; nullptr: opened here
};

class ShardedDataset final : public Dataset {
 public:
  /// Opens and validates every file (shared files when they are read): schema, shapes, types, counts against the
  /// manifest and the siblings, file sizes. Throws FileError that names the file and the remedy.
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
  /// Reads each field in its own type into its own buffer: stored_fields()[f].bytes() per sample into buffers[f]. For
  /// data with several inputs or targets.
  void read_fields(std::span<const std::int64_t> samples, std::span<const std::span<std::byte>> buffers) const;
  /// The fields as read_fields() delivers them, in the order of SampleSource::roles().
  std::vector<Field> stored_fields() const;
  /// Flags, for x and for y, of the samples from `first` on that lack a number.
  struct MissingRows {
    std::vector<bool> x, y;
  };
  MissingRows missing(std::int64_t first, std::int64_t samples) const;
  /// For each number of y of the samples from `first` on, true if it is missing. Requires a single target.
  std::vector<bool> missing_labels(std::int64_t first, std::int64_t samples) const;
  /// True if the attributes or the type of y in any file allow for missing numbers. Requires a single target.
  bool labels_can_be_missing() const;
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
