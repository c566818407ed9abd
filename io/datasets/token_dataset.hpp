/// \file
/// Windows over a corpus of tokens. Sample i has the tokens [i T + s, (i + 1) T + s) as x, and the tokens one position
/// later as y; T is the context. The shift s is 0 in evaluations and with shift = false. In training it is uniform in
/// [0, T), a function of (seed, epoch), so windows start elsewhere in each epoch. There are floor((tokens - T) / T)
/// samples, which is valid for every s. Windows may cross from one shard into the next.
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
      path;  ///< a folder of `tokens` shards with a manifest, or another program's HDF5 file/folder with `x`
  std::string x = "tokens";  ///< dataset name, for other programs' files (one-dimensional, an integer type)
  std::int64_t context = 0;
  std::uint64_t seed = 1;                     ///< seed of the shifts
  bool shift = true;                          ///< false: windows start at the same tokens in every epoch
  IoDeadline* deadline = nullptr;             ///< limit for opening and reading; outlives the dataset. nullptr: none
  std::shared_ptr<SharedShards> shared = {};  ///< shards of `path` that all ranks opened together; nullptr: opened here
};

class TokenDataset final : public Dataset {
 public:
  /// Throws FileError: no tokens, or fewer than 2 T. read() and verify() throw for a token outside the vocabulary. For
  /// other programs' files, the vocabulary is the largest token + 1 (they are read once to find it).
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

/// True if the manifest of the data at `path` describes a corpus of tokens. False without a manifest. Throws FileError
/// for a manifest that cannot be read.
bool holds_tokens(const std::filesystem::path& path);

}  // namespace lockstep::io
