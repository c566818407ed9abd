/// \file
/// A corpus of tokens, seen as windows: sample i is tokens [i T + s, (i + 1) T + s) as x and the tokens one further as
/// y, T the context. s is 0 in evaluation and where nobody shifts; else it is, in training, uniform in [0, T), a
/// function of (seed, epoch), so that windows begin elsewhere in each epoch. There are as many samples as fit for every
/// s: floor((tokens - T) / T). Windows may cross from a shard into the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "io/datasets/dataset.hpp"
#include "io/datasets/shared_shards.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

struct TokenDatasetOptions {
  std::filesystem::path
      path;                  ///< a folder of `tokens` shards with a manifest, or an HDF5 file/folder of others with `x`
  std::string x = "tokens";  ///< dataset name, for files made by others (one-dimensional, an integer type)
  std::int64_t context = 0;
  std::uint64_t seed = 1;                     ///< of the shifts
  bool shift = true;                          ///< false: windows begin at the same tokens in every epoch
  IoDeadline* deadline = nullptr;             ///< of opening and reading; it outlives the dataset. nullptr: none
  std::shared_ptr<SharedShards> shared = {};  ///< path's, opened by all ranks together; nullptr: opened here
};

class TokenDataset final : public Dataset {
 public:
  /// Throws FileError: no tokens, fewer than 2 T of them. A token outside the vocabulary is met by read() or verify();
  /// of files made by others, the vocabulary is the largest token + 1 (they are read once to find it).
  explicit TokenDataset(const TokenDatasetOptions& options);
  ~TokenDataset() override;

  const DatasetInfo& info() const noexcept override;
  const std::vector<ShardInfo>& shards() const noexcept override;
  const std::vector<std::string>& warnings() const noexcept override;
  std::string fingerprint() const override;
  FileType x_type() const noexcept override { return FileType::int32; }
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
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

/// Whether the data at `path` is a corpus of tokens: its manifest says so. False where there is none. Throws FileError
/// for a manifest that cannot be read.
bool holds_tokens(const std::filesystem::path& path);

}  // namespace lockstep::io
