/// \file
/// Packs one source into shards and a manifest, in an existing folder. Internal to io: shard_writer.hpp makes it
/// atomic.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/shards/running_statistics.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {

/// Facts about the labels of a whole set, or of two sets that share their classes.
struct LabelsOfWhole {
  std::int64_t classes = 0;  ///< 0 without class labels
  TargetValues targets = TargetValues::any;
};
LabelsOfWhole together(const LabelsOfWhole& a, const LabelsOfWhole& b) noexcept;

/// Packs in two steps, because the attributes of the whole set (range, classes) are known only after the last sample,
/// and the two folders of a split have the same classes. Several processes can each write a part of the shards, and
/// exchange their findings between the steps. The bytes do not depend on the number of processes.
class ShardPacker {
 public:
  /// source and progress must outlive the packer; `classes` as in ShardWriterOptions. Throws FileError for a source
  /// without samples, std::invalid_argument for less than one shard or more shards than samples.
  ShardPacker(SampleSource& source, std::int64_t shards, std::int64_t classes, std::filesystem::path folder,
              const PackProgress& progress);

  /// Writes the samples of one of `parts` processes into its shards. Throws FileError: a full disk, NaN or infinity, a
  /// label or a token out of range.
  void write(int part, int parts);
  /// The findings of write(), for know(): bytes that only processes of the same program understand.
  std::string found() const;
  /// Takes the findings of all processes, in the order of their parts. Throws FileError: numbers too large to measure.
  void know(std::span<const std::string> found);
  /// The labels of the whole set. Classes as given or named, or the largest label + 1.
  LabelsOfWhole labels() const noexcept;
  /// Writes the attributes of this process's shards and syncs them. Returns the sizes of the files, for finish().
  std::string describe(const LabelsOfWhole& labels);
  /// Writes the manifest; called in one process, after all have described their shards.
  PackSummary finish(std::span<const std::string> described);

 private:
  static constexpr std::int64_t kNoLabel = std::numeric_limits<std::int64_t>::max();
  /// A shard and the statistics of its samples.
  struct Measured {
    std::int64_t index = 0;
    std::uint64_t checksum_x = 0, checksum_y = 0, checksum_weight = 0, checksum_id = 0;
    RunningStatistics statistics;  ///< statistics of x
    std::int64_t smallest_label = kNoLabel, largest_label = 0;
    TargetValues targets = TargetValues::any;
    std::uint64_t source_bytes = 0;  ///< bytes of a corpus's text, up to the end of this shard
  };

  /// One of several fields of a shard.
  struct MeasuredField {
    std::uint64_t checksum = 0;
    RunningStatistics statistics;
  };

  void know_fields(std::span<const RunningStatistics> statistics);
  std::int64_t boundary(std::int64_t shard) const noexcept;
  void report(bool always);
  void write_shard(std::int64_t index);
  std::vector<std::span<std::byte>> read_block(std::int64_t samples, Measured& measured, TargetPattern& targets,
                                               std::span<MeasuredField> fields);
  void measure(std::size_t field, std::span<const std::byte> block, RunningStatistics& statistics);
  void check_labels(std::span<const std::byte> block, Measured& measured);
  void check_tokens(std::span<const std::byte> block) const;
  std::uint64_t describe(const ManifestShard& shard, std::uint64_t checksum_weight) const;

  SampleSource& source_;
  std::int64_t shard_count_;
  std::filesystem::path folder_;
  const PackProgress& progress_;
  ShardManifest manifest_;
  std::vector<Field> stored_;  ///< the manifest's fields, followed by the names of the samples
  std::int64_t class_limit_ = 0;
  bool classes_known_ = false;
  std::size_t sample_bytes_ = 0;
  std::int64_t block_samples_ = 1;
  std::vector<std::vector<std::byte>> buffers_;
  RunningStatistics target_statistics_;
  std::vector<Measured> own_;
  std::vector<MeasuredField> own_fields_;     ///< fields of each shard in own_, if there are several inputs or targets
  std::int64_t smallest_label_ = kNoLabel;    ///< over the whole set
  std::int64_t largest_label_ = 0;            ///< over the whole set
  TargetValues targets_ = TargetValues::any;  ///< over the whole set
  std::int64_t done_ = 0;                     ///< position in the source
  std::int64_t first_ = 0, end_ = 0;          ///< samples of this process's shards
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace lockstep::io
