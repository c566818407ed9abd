/// \file
/// Samples of a table whose features and targets have other places than the data give them: those of the table that a
/// network was trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"

namespace lockstep::io {

/// Where the numbers of a sample come from: for each place, the one in the data; -1: there is none, and it is 0.
struct Arrangement {
  std::vector<std::int64_t> features;
  std::vector<std::int64_t> targets;  ///< likewise, never -1; empty: y stays as it is

  bool empty() const noexcept { return features.empty() && targets.empty(); }
};

/// The data as they are, but for x, the targets, and what info() says of their shapes and columns.
class RearrangedDataset final : public Dataset {
 public:
  /// `table`: of the samples as they are delivered. Throws std::invalid_argument where the data are no table of float32
  /// or an arrangement names what they do not have.
  RearrangedDataset(std::unique_ptr<Dataset> data, Arrangement arrangement, TableSchema table);

  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<ShardInfo>& shards() const noexcept override { return data_->shards(); }
  const std::vector<std::string>& warnings() const noexcept override { return data_->warnings(); }
  /// Of the data as they lie on the disk.
  std::string fingerprint() const override { return data_->fingerprint(); }
  FileType x_type() const noexcept override { return data_->x_type(); }
  FileType y_type() const noexcept override { return data_->y_type(); }
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override {
    data_->read_ids(samples, ids);
  }
  bool has_weights() const noexcept override { return data_->has_weights(); }
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override {
    data_->read_weights(samples, weights);
  }
  std::vector<std::int64_t> shard_counts() const override { return data_->shard_counts(); }
  std::size_t stored_bytes() const noexcept override { return data_->stored_bytes(); }
  std::int64_t block_multiple() const noexcept override { return data_->block_multiple(); }
  std::size_t cache_bytes() const noexcept override { return data_->cache_bytes(); }
  void will_need(std::int64_t first, std::int64_t count) const noexcept override { data_->will_need(first, count); }
  std::uint64_t verify(int part, int parts) const override { return data_->verify(part, parts); }
  void check_unchanged(int part, int parts) override { data_->check_unchanged(part, parts); }

 private:
  std::unique_ptr<Dataset> data_;
  Arrangement arrangement_;
  DatasetInfo info_;
};

}  // namespace lockstep::io
