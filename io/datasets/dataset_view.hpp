/// \file
/// Base class of datasets that deliver another dataset with changes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/datasets/dataset.hpp"

namespace lockstep::io {

/// Forwards everything to the given data. A derived class overrides only what it changes. Each new member of Dataset
/// must be forwarded here.
class DatasetView : public Dataset {
 public:
  const DatasetInfo& info() const noexcept override { return data_->info(); }
  const std::vector<ShardInfo>& shards() const noexcept override { return data_->shards(); }
  const std::vector<std::string>& warnings() const noexcept override { return data_->warnings(); }
  /// Identifies the stored data.
  std::string fingerprint() const override { return data_->fingerprint(); }
  std::string contents() const override { return data_->contents(); }
  FileType x_type() const noexcept override { return data_->x_type(); }
  FileType y_type() const noexcept override { return data_->y_type(); }
  std::size_t x_bytes() const noexcept override { return data_->x_bytes(); }
  std::size_t y_bytes() const noexcept override { return data_->y_bytes(); }
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override {
    data_->read(samples, epoch, x, y);
  }
  bool has_weights() const noexcept override { return data_->has_weights(); }
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override {
    data_->read_weights(samples, weights);
  }
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override {
    data_->read_ids(samples, ids);
  }
  std::vector<std::int64_t> shard_counts() const override { return data_->shard_counts(); }
  std::size_t stored_bytes() const noexcept override { return data_->stored_bytes(); }
  std::int64_t block_multiple() const noexcept override { return data_->block_multiple(); }
  std::size_t cache_bytes() const noexcept override { return data_->cache_bytes(); }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override {
    data_->will_need(first, count, epoch);
  }
  std::uint64_t verify(int part, int parts) const override { return data_->verify(part, parts); }
  void check_unchanged(int part, int parts) override { data_->check_unchanged(part, parts); }

 protected:
  /// Several views may share `data`.
  explicit DatasetView(std::shared_ptr<Dataset> data) : data_(std::move(data)) {}

  const Dataset& data() const noexcept { return *data_; }
  Dataset& data() noexcept { return *data_; }

 private:
  std::shared_ptr<Dataset> data_;
};

}  // namespace lockstep::io
