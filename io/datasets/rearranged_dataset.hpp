/// \file
/// Samples of a table with features and targets in another order than in the data: the order of the table that a
/// network was trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// Source of each number of a sample: its index in the data; -1: none, the number is 0.
struct Arrangement {
  std::vector<std::int64_t> features;
  std::vector<std::int64_t> targets;  ///< the same for targets, never -1; empty: y stays unchanged

  bool empty() const noexcept { return features.empty() && targets.empty(); }
};

/// The data as they are, but for x, the targets, and what info() says of their shapes and columns.
class RearrangedDataset final : public DatasetView {
 public:
  /// `table`: of the samples as they are delivered. Throws std::invalid_argument where the data are no table of float32
  /// or an arrangement names what they do not have.
  RearrangedDataset(std::shared_ptr<Dataset> data, Arrangement arrangement, TableSchema table);

  const DatasetInfo& info() const noexcept override { return info_; }
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  Arrangement arrangement_;
  DatasetInfo info_;
};

}  // namespace lockstep::io
