/// \file
/// Delivers features and targets of a table in another order than stored: the order of the table that a network was
/// trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// For each delivered number its index in the stored sample; -1: the number is 0.
struct Arrangement {
  std::vector<std::int64_t> features;
  std::vector<std::int64_t> targets;  ///< the same for targets, never -1; empty: y is unchanged

  bool empty() const noexcept { return features.empty() && targets.empty(); }
};

/// Delivers the data with changes to x, the targets, and their shapes and columns in info().
class RearrangedDataset final : public DatasetView {
 public:
  /// `table`: schema of the delivered samples. Throws std::invalid_argument if the data are not rows of a table, or if
  /// an index is out of range.
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
