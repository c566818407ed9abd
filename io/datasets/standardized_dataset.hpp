/// \file
/// Standardises the numbers of samples, or their targets, when they are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::io {

/// Delivers the data with changes only to the numbers. info() describes the stored numbers.
class StandardizedDataset final : public DatasetView {
 public:
  /// An empty scale leaves x unchanged; otherwise x_type() is float32. float64 targets become float32, with or without
  /// a scale. Throws std::invalid_argument if a scale has another number of features than a sample, or if y has no
  /// targets.
  StandardizedDataset(std::shared_ptr<Dataset> data, FeatureScale x, FeatureScale y);

  FileType x_type() const noexcept override { return x_.empty() ? data().x_type() : FileType::float32; }
  FileType y_type() const noexcept override {
    return data().y_type() == FileType::float64 ? FileType::float32 : data().y_type();
  }
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  FeatureScale x_, y_;
};

}  // namespace lockstep::io
