/// \file
/// Samples -> a folder of HDF5 shards and manifest.json (shard_schema.md). Streaming; atomic: everything is written
/// into a temporary sibling folder, synced, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "io/sample_source.hpp"

namespace lockstep::io {

struct ShardWriterOptions {
  std::filesystem::path folder;
  std::int64_t shards = 1;  ///< shard i holds samples [i N / shards, (i+1) N / shards)
  bool overwrite = false;   ///< --force; without it an existing folder is an error
  /// For integer class labels without names: 0 = largest label + 1.
  std::int64_t classes = 0;
};

struct PackSummary {
  std::int64_t samples = 0;
  std::int64_t shards = 0;
  std::uint64_t bytes = 0;
};

/// `progress(samples done, samples in all)` is called a few times a second; throwing from it cancels cleanly (the
/// temporary folder goes). Throws FileError; the message for a full disk names the folder and the bytes needed.
PackSummary write_shards(SampleSource& source, const ShardWriterOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace lockstep::io
