/// \file
/// Samples with other class numbers than in the data: the numbers that a network uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// The data as they are, but for the labels and what info() says of the classes.
class RelabelledDataset final : public DatasetView {
 public:
  /// Class c of `data` becomes `new_class[c]`, one of `classes`, which have `names` or none. Throws
  /// std::invalid_argument where `data` has no classes, or others than `new_class` speaks of.
  RelabelledDataset(std::shared_ptr<Dataset> data, std::vector<std::int32_t> new_class, std::int64_t classes,
                    std::vector<std::string> names);

  const DatasetInfo& info() const noexcept override { return info_; }
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  void relabel(std::span<std::byte> y) const;

  std::vector<std::int32_t> new_class_;
  DatasetInfo info_;
};

}  // namespace lockstep::io
