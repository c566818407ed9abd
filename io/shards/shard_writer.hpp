/// \file
/// Writes samples into a folder of HDF5 shards with manifest.json (shard_schema.md). Streams the samples. Atomic:
/// writes and syncs a temporary sibling folder, then renames it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// The processes that write one folder together. Each writes a part of its shards. All calls are collective.
class PackPeers {
 public:
  virtual ~PackPeers() = default;
  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }
  /// Runs `work` in each process; an exception in any is thrown in all.
  virtual void all_succeed(const std::function<void()>& work) { work(); }
  /// The texts of all processes, in the order of their ranks.
  virtual std::vector<std::string> gather(std::string own) { return {std::move(own)}; }
};

struct ShardWriterOptions {
  std::filesystem::path folder;
  std::int64_t shards = 1;  ///< shard i holds samples [i N / shards, (i+1) N / shards)
  bool overwrite = false;   ///< --force; without it an existing folder is an error
  /// Number of classes of integer labels without names; 0: largest label + 1.
  std::int64_t classes = 0;
  PackPeers* peers = nullptr;  ///< nullptr: this process packs alone
};

struct PackSummary {
  std::int64_t samples = 0;
  std::int64_t shards = 0;
  std::uint64_t bytes = 0;
  std::int64_t first_class = 0;  ///< class labels without names: the smallest label; smaller classes have no samples
};

/// Called a few times per second as progress(samples done, samples in all) for this process's part. If it throws, the
/// temporary folder is removed and packing ends.
using PackProgress = std::function<void(std::int64_t, std::int64_t)>;

/// Writes the same bytes for any number of processes, each of which reads the source; process 0 returns the summary.
/// Throws FileError; the message for a full disk names the folder and the bytes needed.
PackSummary write_shards(SampleSource& source, const ShardWriterOptions& options, const PackProgress& progress);

inline constexpr const char* kTrainName = "train";
inline constexpr const char* kValidationName = "validation";
inline constexpr const char* kTestName = "test";

/// Division into training and validation. For samples, a random choice that depends only on the seed; for a corpus, the
/// last part is for validation.
struct SplitOptions {
  std::int64_t validation = 0;  ///< samples (tokens) of the validation part; at least 1, and fewer than in all
  std::uint64_t seed = 1;
};

struct SplitSummary {
  PackSummary train, validation;
};

/// Source of FOLDER/NAME.
struct NamedSource {
  std::string name;
  std::unique_ptr<SampleSource> source;
};
using OpenParts = std::function<std::vector<NamedSource>()>;
/// Writes all parts of a source that is already split, or none. options.shards applies to the first part; the others
/// get a proportional number. All parts have the classes of the whole.
std::vector<PackSummary> write_parts(const OpenParts& open, const ShardWriterOptions& options,
                                     const PackProgress& progress);

/// Opens the same source from its beginning, because each part is read in its own pass.
using OpenSource = std::function<std::unique_ptr<SampleSource>()>;

/// Writes FOLDER/train and FOLDER/validation, both or none. options.shards applies to the training part; the validation
/// part has a proportional number. Both parts have the classes of the whole.
SplitSummary write_split(const OpenSource& open, const SplitOptions& split, const ShardWriterOptions& options,
                         const PackProgress& progress);

}  // namespace lockstep::io
