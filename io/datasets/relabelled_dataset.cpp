#include "io/datasets/relabelled_dataset.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace lockstep::io {

RelabelledDataset::RelabelledDataset(std::shared_ptr<Dataset> data, std::vector<std::int32_t> new_class,
                                     std::int64_t classes, std::vector<std::string> names)
    : DatasetView(std::move(data)), new_class_(std::move(new_class)), info_(this->data().info()) {
  if (!info_.labels_are_classes || info_.y.name.empty() || info_.classes != std::ssize(new_class_)) {
    throw std::invalid_argument(fmt::format("new numbers for {} classes, and the data have {}", new_class_.size(),
                                            info_.labels_are_classes ? info_.classes : 0));
  }
  for (const std::int32_t number : new_class_) {
    if (number < 0 || number >= classes) throw std::invalid_argument(fmt::format("class {} of {}", number, classes));
  }
  info_.classes = classes;
  info_.class_names = std::move(names);
}

void RelabelledDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                             std::span<std::byte> y) const {
  data().read(samples, epoch, x, y);
  relabel(y);
}

void RelabelledDataset::relabel(std::span<std::byte> y) const {
  for (std::size_t at = 0; at < y.size(); at += sizeof(std::int32_t)) {
    std::int32_t label = 0;
    std::memcpy(&label, &y[at], sizeof label);
    if (label == kIgnored && info_.has_masks()) continue;
    label = new_class_.at(static_cast<std::size_t>(label));  // the dataset has checked the label's range
    std::memcpy(&y[at], &label, sizeof label);
  }
}

}  // namespace lockstep::io
