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

#include "io/sample_source.hpp"

namespace lockstep::io {

struct DatasetOptions {
  std::filesystem::path path;  ///< a shard folder, a folder of .h5/.hdf5 files, or one such file
  std::string x = "x";         ///< dataset names, for files made by others
  std::string y = "y";
};

/// How x becomes numbers and how labels look, from the manifest (or guessed from the types where there is none).
struct DatasetInfo {
  std::int64_t samples = 0;
  Field x;
  Field y;  ///< an empty name: packed without labels
  bool labels_are_classes = true;
  std::int64_t classes = 0;  ///< 0: regression
  std::vector<std::string> class_names;
  double value_min = 0, value_max = 1;      ///< of x
  double mean = 0, standard_deviation = 1;  ///< of x over all elements; only with a manifest
  bool has_statistics = false;
  std::string source;
};

/// One shard file as opened.
struct ShardInfo {
  std::filesystem::path file;
  std::int64_t first = 0;  ///< index of its first sample
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
  bool by_offset = false;              ///< read with pread; otherwise through the library
  std::string checksum_x, checksum_y;  ///< hex, "" where the file has none
};

class ShardedDataset {
 public:
  /// Opens and validates every file: schema, shapes, types, counts against the manifest and the siblings, file sizes.
  /// Throws FileError naming the file and what to do.
  explicit ShardedDataset(const DatasetOptions& options);
  ~ShardedDataset();
  ShardedDataset(ShardedDataset&&) noexcept;

  const DatasetInfo& info() const noexcept;
  const std::vector<ShardInfo>& shards() const noexcept;
  /// For the user: a layout that splits samples, a missing manifest …
  const std::vector<std::string>& warnings() const noexcept;
  /// Text that is equal when the data is: names, counts, shapes, checksums. For the fingerprint.
  std::string fingerprint() const;

  /// The type in which x reaches the model: uint8 stays uint8, float64 stays float64, all else becomes float32.
  FileType x_type() const noexcept;
  /// Bytes of one sample as delivered: x as x_type(); y as one int32 (classes) or float32 per target;
  /// no labels: y takes 0 bytes.
  std::size_t x_bytes() const noexcept;
  std::size_t y_bytes() const noexcept;

  /// Reads samples by index, in the given order. Thread-safe. Throws FileError naming file and sample: read errors,
  /// labels outside [0, classes), NaN or infinity in float data.
  void read(std::span<const std::int64_t> samples, std::span<std::byte> x, std::span<std::byte> y) const;

  /// Chunked data is best read in blocks that are multiples of this many samples; 1 for contiguous data.
  std::int64_t block_multiple() const noexcept;
  /// Asks the kernel to read x of samples [first, first + count) ahead. Returns at once.
  void will_need(std::int64_t first, std::int64_t count) const noexcept;

  /// Recomputes the checksums of shards part, part + parts, … and throws FileError at the first that differs.
  /// Returns the bytes read.
  std::uint64_t verify(int part, int parts) const;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace lockstep::io
