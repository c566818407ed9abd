/// \file
/// Samples whose classes have other numbers than the data give them: those that a network knows them by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"

namespace lockstep::io {

/// The data as they are, but for the labels and what info() says of the classes.
class RelabelledDataset final : public Dataset {
 public:
  /// Class c of `data` becomes `new_class[c]`, one of `classes`, which have `names` or none. Throws
  /// std::invalid_argument where `data` has no classes, or others than `new_class` speaks of.
  RelabelledDataset(std::unique_ptr<Dataset> data, std::vector<std::int32_t> new_class, std::int64_t classes,
                    std::vector<std::string> names);

  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<ShardInfo>& shards() const noexcept override { return data_->shards(); }
  const std::vector<std::string>& warnings() const noexcept override { return data_->warnings(); }
  /// Of the data as they lie on the disk.
  std::string fingerprint() const override { return data_->fingerprint(); }
  FileType x_type() const noexcept override { return data_->x_type(); }
  std::size_t x_bytes() const noexcept override { return data_->x_bytes(); }
  std::size_t y_bytes() const noexcept override { return data_->y_bytes(); }
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
  void relabel(std::span<std::byte> y) const;

  std::unique_ptr<Dataset> data_;
  std::vector<std::int32_t> new_class_;
  DatasetInfo info_;
};

}  // namespace lockstep::io
