/// \file
/// One source -> shards and their manifest in a folder that exists. Internal to io: shard_writer.hpp makes it atomic.
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

/// What the labels of a whole set are, or of two sets that belong together.
struct LabelsOfWhole {
  std::int64_t classes = 0;  ///< 0 where there are no class labels
  TargetValues targets = TargetValues::any;
};
LabelsOfWhole together(const LabelsOfWhole& a, const LabelsOfWhole& b) noexcept;

/// In two steps: what every file says about the whole (range, classes) is known after the last sample, and two folders
/// that belong together have the same classes. Several processes write a part of the shards each, and tell each other
/// what they have found in between; the bytes do not depend on how many there are.
class ShardPacker {
 public:
  /// source and progress must outlive the packer; `classes` as in ShardWriterOptions. Throws FileError for a source
  /// without samples, std::invalid_argument for fewer than one shard or more of them than samples.
  ShardPacker(SampleSource& source, std::int64_t shards, std::int64_t classes, std::filesystem::path folder,
              const PackProgress& progress);

  /// The samples of the shards of one of `parts` processes, into their files. Throws FileError: a full disk, NaN or
  /// infinity, a label or a token outside of what there is.
  void write(int part, int parts);
  /// What write() has found, for know(): bytes that mean something to a process of the same program only.
  std::string found() const;
  /// What all processes have found, in the order of their parts. Throws FileError: numbers too large to measure.
  void know(std::span<const std::string> found);
  /// Of the whole. Classes as given or named, or the largest label + 1.
  LabelsOfWhole labels() const noexcept;
  /// The attributes of the shards of write(); they are synced. Returns their bytes in the files, for finish().
  std::string describe(const LabelsOfWhole& labels);
  /// The manifest, by one process, once all have described theirs.
  PackSummary finish(std::span<const std::string> described);

 private:
  static constexpr std::int64_t kNoLabel = std::numeric_limits<std::int64_t>::max();
  /// A shard, and what its samples are like.
  struct Measured {
    std::int64_t index = 0;
    std::uint64_t checksum_x = 0, checksum_y = 0, checksum_weight = 0, checksum_id = 0;
    RunningStatistics statistics;  ///< of x
    std::int64_t smallest_label = kNoLabel, largest_label = 0;
    TargetValues targets = TargetValues::any;
    std::uint64_t source_bytes = 0;  ///< of a corpus: of its text, up to the end of this shard
  };

  std::int64_t boundary(std::int64_t shard) const noexcept;
  void report(bool always);
  void write_shard(std::int64_t index);
  std::vector<std::span<std::byte>> read_block(std::int64_t samples, Measured& measured, TargetPattern& targets);
  void measure(std::size_t field, std::span<const std::byte> block, RunningStatistics& statistics);
  void check_labels(std::span<const std::byte> block, Measured& measured);
  void check_tokens(std::span<const std::byte> block) const;
  std::uint64_t describe(const ManifestShard& shard, std::uint64_t checksum_weight) const;

  SampleSource& source_;
  std::int64_t shard_count_;
  std::filesystem::path folder_;
  const PackProgress& progress_;
  ShardManifest manifest_;
  std::vector<Field> stored_;  ///< the manifest's fields, and the names of the samples
  std::int64_t class_limit_ = 0;
  bool classes_known_ = false;
  std::size_t sample_bytes_ = 0;
  std::int64_t block_samples_ = 1;
  std::vector<std::vector<std::byte>> buffers_;
  RunningStatistics target_statistics_;
  std::vector<Measured> own_;
  std::int64_t smallest_label_ = kNoLabel;    ///< of the whole
  std::int64_t largest_label_ = 0;            ///< likewise
  TargetValues targets_ = TargetValues::any;  ///< likewise
  std::int64_t done_ = 0;                     ///< place in the source
  std::int64_t first_ = 0, end_ = 0;          ///< samples of the shards of write()
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace lockstep::io
