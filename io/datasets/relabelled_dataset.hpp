/// \file
/// Delivers samples with the class numbers of a network instead of the stored ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// Delivers the data with changes to the labels and to the classes in info().
class RelabelledDataset final : public DatasetView {
 public:
  /// Class c of `data` becomes new_class[c], one of `classes`; `names` has their names or is empty. Throws
  /// std::invalid_argument if `data` has no classes or another number of them than `new_class`.
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
