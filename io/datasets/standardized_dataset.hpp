/// \file
/// Samples whose numbers, or targets, are standardised on reading.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::io {

/// The data as they are, but for the numbers that read() delivers. info() speaks of them as they are stored.
class StandardizedDataset final : public DatasetView {
 public:
  /// An empty scale leaves x unchanged; otherwise x_type() is float32. Targets become float32, scaled or not. Throws
  /// std::invalid_argument if a scale has other features than a sample, or if y are not targets.
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
