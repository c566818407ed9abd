/// \file
/// Samples whose numbers, or targets, are standardised as they are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::io {

/// The data as they are, but for the numbers that read() delivers. info() speaks of them as they are stored.
class StandardizedDataset final : public Dataset {
 public:
  /// An empty scale leaves x alone; otherwise x_type() is float32. Targets become float32, scaled or not. Throws
  /// std::invalid_argument where a scale has other features than a sample, or y are no targets.
  StandardizedDataset(std::shared_ptr<Dataset> data, FeatureScale x, FeatureScale y);

  const DatasetInfo& info() const noexcept override { return data_->info(); }
  const std::vector<ShardInfo>& shards() const noexcept override { return data_->shards(); }
  const std::vector<std::string>& warnings() const noexcept override { return data_->warnings(); }
  /// Of the data as they lie on the disk.
  std::string fingerprint() const override { return data_->fingerprint(); }
  FileType x_type() const noexcept override { return x_.empty() ? data_->x_type() : FileType::float32; }
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
  std::shared_ptr<Dataset> data_;
  FeatureScale x_, y_;
};

}  // namespace lockstep::io
