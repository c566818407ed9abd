/// \file
/// One source -> shards and their manifest in a folder that exists. Internal to io: shard_writer.hpp makes it atomic.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/shards/running_statistics.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {

/// In two steps: what every file says about the whole (range, classes) is known after the last sample, and two folders
/// that belong together have the same classes.
class ShardPacker {
 public:
  /// source and progress must outlive the packer; `classes` as in ShardWriterOptions. Throws FileError for a source
  /// without samples, std::invalid_argument for fewer than one shard or more of them than samples.
  ShardPacker(SampleSource& source, std::int64_t shards, std::int64_t classes, std::filesystem::path folder,
              const PackProgress& progress);

  /// Every sample, into the shard files. Throws FileError: a full disk, NaN or infinity, a label or a token outside of
  /// what there is.
  void write();
  /// As given or named, or the largest label of write() + 1; 0 where there are no class labels.
  std::int64_t classes() const noexcept;
  /// Attributes and manifest; everything is synced.
  PackSummary finish(std::int64_t classes);

 private:
  std::int64_t boundary(std::int64_t shard) const noexcept;
  void report(bool always);
  void write_shard(std::int64_t index);
  std::vector<std::span<std::byte>> read_block(std::int64_t samples);
  void measure(std::size_t field, std::span<const std::byte> block, RunningStatistics& statistics);
  void check_labels(std::span<const std::byte> block);
  void check_tokens(std::span<const std::byte> block) const;
  void measure_whole();
  void describe(ManifestShard& shard) const;

  SampleSource& source_;
  std::int64_t shard_count_;
  std::filesystem::path folder_;
  const PackProgress& progress_;
  ShardManifest manifest_;
  std::int64_t class_limit_ = 0;
  bool classes_known_ = false;
  std::size_t sample_bytes_ = 0;
  std::int64_t block_samples_ = 1;
  std::vector<std::vector<std::byte>> buffers_;
  RunningStatistics statistics_, target_statistics_;
  std::int64_t largest_label_ = 0;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace lockstep::io
