/// \file
/// Samples by index, for the prefetcher and for evaluations. There are two kinds: shards of samples
/// (sharded_dataset.hpp) and windows over a corpus of tokens (token_dataset.hpp). Views change them, for example into
/// windows over series of numbers (window_dataset.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/shards/sample_source.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

/// One of several inputs or targets: a range of the row x or y.
struct FieldRange {
  Field field;             ///< as stored; images with channels last
  std::int64_t first = 0;  ///< index of its first number in the row
  bool has_statistics = false;
  double value_min = 0, value_max = 1, mean = 0, standard_deviation = 1;  ///< set if has_statistics
};

/// Names of the numbers of adjacent fields: "mass" for one number; "place_0", "place_1" for a field of several.
std::vector<std::string> names_of_numbers(std::span<const FieldRange> fields);

/// Delivered label of a position that belongs to no class (DatasetInfo::ignored_label).
inline constexpr std::int32_t kIgnored = -1;

/// Windows over series (window_dataset.hpp).
struct WindowInfo {
  std::int64_t window = 0, horizon = 0;        ///< steps
  std::int64_t series = 1, steps = 0;          ///< number of series, and number of steps of each
  std::vector<std::string> target_names = {};  ///< names of the forecast numbers: "load+1"; empty: unknown
};

/// Meaning of x, and form of the labels, from the manifest (or guessed from the types without one).
struct DatasetInfo {
  std::int64_t samples = 0;
  Field x;
  Field y;  ///< empty name: packed without labels
  /// Two or more inputs, adjacent in x in this order. x is then a row of numbers of the type that holds all of them
  /// (Dataset::x_type). Empty: x is the input.
  std::vector<FieldRange> inputs = {};
  std::vector<FieldRange> targets = {};  ///< the same for y; of a field, ranges of a position's channels
  /// A field of numbers to predict: extents of the positions of y, whose last extent is the channels if y has more.
  /// Empty: y is a row of targets, or holds classes.
  std::vector<std::int64_t> field = {};
  bool labels_are_classes = true;
  /// Masks: the stored label of positions that belong to no class, which are delivered as kIgnored.
  std::optional<std::int64_t> ignored_label;
  std::int64_t classes = 0;         ///< 0: regression; for tokens, the vocabulary
  bool holds_weights = false;       ///< packed with a weight for each sample (kWeightName)
  bool targets_are_binary = false;  ///< every target is 0 or 1: a sample may have any number of these labels
  std::vector<std::string> class_names;
  double value_min = 0, value_max = 1;      ///< range of x
  double mean = 0, standard_deviation = 1;  ///< moments of all elements of x; only with a manifest
  bool has_statistics = false;
  std::string source;
  std::optional<TokenInfo> tokens;    ///< set: x and y are windows of tokens, int32 [context]
  std::optional<TableSchema> table;   ///< set: x has the columns of a table
  std::optional<SampleId> id;         ///< set: samples have names
  std::optional<WindowInfo> windows;  ///< set: x is a window over series, [window, numbers of a step]

  /// True for a class label at each position of a sample, with the extents of y.
  bool has_masks() const noexcept { return labels_are_classes && !tokens && y.elements() > 1; }
  /// Numbers of y with a mean of their own: the targets of a row, or the channels of a field.
  std::int64_t target_count() const noexcept;
};

/// An open shard file.
struct ShardInfo {
  std::filesystem::path file;
  std::int64_t first = 0;  ///< index of its first sample, or of its first token in a corpus
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
  bool by_offset = false;              ///< read with pread; otherwise through the library
  std::string checksum_x, checksum_y;  ///< hex; "": the file has none
};

/// Epoch of evaluations: samples do not depend on an epoch.
inline constexpr std::int64_t kNoEpoch = -1;

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual const DatasetInfo& info() const noexcept = 0;
  virtual const std::vector<ShardInfo>& shards() const noexcept = 0;
  /// Warnings for users: a layout that splits samples, a missing manifest ...
  virtual const std::vector<std::string>& warnings() const noexcept = 0;
  /// Identifies the data by names, counts, shapes, checksums: equal text, equal data. For the fingerprint.
  virtual std::string fingerprint() const = 0;
  /// Identifies the delivered numbers and their order in each epoch, whatever the files are called; "": unknown.
  virtual std::string contents() const { return ""; }

  /// Type in which x reaches the model. uint8 stays uint8; float64, and integers of 32 and 64 bits that float32 cannot
  /// hold, become float64; tokens are int32; everything else becomes float32.
  virtual FileType x_type() const noexcept = 0;
  /// int32 (classes, tokens) or float32 (targets). float64 with wide_targets, until targets are standardised.
  virtual FileType y_type() const noexcept {
    return info().labels_are_classes || info().tokens ? FileType::int32 : FileType::float32;
  }
  /// Bytes of one sample as delivered: x as x_type(), y as y_type(); without labels, y takes 0 bytes.
  virtual std::size_t x_bytes() const noexcept = 0;
  virtual std::size_t y_bytes() const noexcept = 0;

  /// Reads samples by index, in the given order. A sample may depend on the epoch (windows start elsewhere in each),
  /// but not in kNoEpoch. Thread-safe. Throws FileError naming file and sample: read errors, labels outside [0,
  /// classes) (except ignored ones), NaN or infinity in float data, numbers beyond the range of float32. With an empty
  /// x, only y is read.
  virtual void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                    std::span<std::byte> y) const = 0;
  /// The y of read() in kNoEpoch, without reading x; only tokens need their x for it.
  void read_y(std::span<const std::int64_t> samples, std::span<std::byte> y) const {
    std::vector<std::byte> x(info().tokens ? samples.size() * x_bytes() : 0);
    read(samples, kNoEpoch, x, y);
  }

  /// True if a data set of the files holds a weight for each sample.
  virtual bool has_weights() const noexcept { return false; }
  /// Reads weights by index. Throws FileError naming file and sample: read errors, weights below 0, NaN or infinity.
  virtual void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const;

  /// The names of samples, info().id->bytes each, padded with zeros. Throws FileError, and std::logic_error if samples
  /// have no names.
  virtual void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const;

  /// Samples per shard: blocks of the sample order never cross shards. One entry if shards do not matter.
  virtual std::vector<std::int64_t> shard_counts() const = 0;
  /// Bytes of one sample on disk, x and y together.
  virtual std::size_t stored_bytes() const noexcept = 0;
  /// Chunked data is read fastest in blocks that are multiples of this many samples; 1 for contiguous data.
  virtual std::int64_t block_multiple() const noexcept = 0;
  /// Largest size of the cache for data that cannot be read sample by sample (chunked, compressed); 0: no cache.
  virtual std::size_t cache_bytes() const noexcept { return 0; }
  /// Asks the kernel to read samples [first, first + count) of an epoch ahead. Returns at once.
  virtual void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept = 0;

  /// Recomputes the checksums of shards part, part + parts, ... and throws FileError at the first that differs.
  /// Returns the bytes read.
  virtual std::uint64_t verify(int part, int parts) const = 0;
  /// Throws FileError at the first of shards part, part + parts, ... whose file has changed since it was opened:
  /// another inode, size or time of change. One stat per shard, no reading.
  virtual void check_unchanged(int part, int parts) = 0;
};

inline void Dataset::read_weights(std::span<const std::int64_t>, std::span<float>) const {
  throw std::logic_error("these samples have no weights");
}

}  // namespace lockstep::io
