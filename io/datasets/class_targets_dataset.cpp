#include "io/datasets/class_targets_dataset.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"

namespace lockstep::io {

ClassTargetsDataset::ClassTargetsDataset(std::shared_ptr<Dataset> data, std::span<const ClassTarget> targets,
                                         std::filesystem::path path)
    : DatasetView(std::move(data)), info_(this->data().info()), path_(std::move(path)) {
  std::int64_t numbers = 0;
  for (FieldRange& range : info_.targets) {
    Part part{.name = range.field.name, .from = range.first, .to = numbers, .count = range.field.elements()};
    if (const auto found = std::ranges::find(targets, part.name, &ClassTarget::name); found != targets.end()) {
      if (part.count != 1) {
        throw FileError({.file = path_,
                         .what = fmt::format("{} holds {} numbers for each sample: the label of a class is one",
                                             part.name, part.count)});
      }
      part.classes = found->classes;
      range = {.field = range.field};
      range.field.sample_shape = {found->classes};
    }
    range.first = numbers;
    numbers += range.field.elements();
    parts_.push_back(std::move(part));
  }
  info_.y.sample_shape = {numbers};
}

std::size_t ClassTargetsDataset::y_bytes() const noexcept {
  return static_cast<std::size_t>(info_.y.elements()) * size_of(y_type());
}

void ClassTargetsDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                               std::span<std::byte> y) const {
  if (y.empty()) return data().read(samples, epoch, x, y);
  std::vector<std::byte> stored(samples.size() * data().y_bytes());
  data().read(samples, epoch, x, stored);
  with_elements(y_type(), stored, [&]<class Number>(std::span<const Number> from) {
    expand(from, std::span(reinterpret_cast<Number*>(y.data()), y.size() / sizeof(Number)), samples);
  });
}

template <class Number>
void ClassTargetsDataset::expand(std::span<const Number> from, std::span<Number> to,
                                 std::span<const std::int64_t> samples) const {
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const std::size_t columns = size(data().info().y.elements()), wide = size(info_.y.elements());
  std::ranges::fill(to, Number{0});
  for (std::size_t row = 0; row < samples.size(); ++row) {
    for (const Part& part : parts_) {
      const auto own = from.subspan(row * columns + size(part.from), size(part.count));
      const auto out = to.subspan(row * wide + size(part.to));
      if (part.classes == 0) {
        std::ranges::copy(own, out.begin());
        continue;
      }
      const auto label = static_cast<double>(own[0]);
      if (!(label >= 0 && label < static_cast<double>(part.classes)) || label != std::floor(label)) {
        throw FileError(
            {.file = path_,
             .what = fmt::format("{} has the label {:.10g}, and its classes are 0 to {}: {}", part.name, label,
                                 part.classes - 1,
                                 label != std::floor(label) ? "labels are whole numbers"
                                                            : "`classes:` of its loss says how many there are")});
      }
      out[static_cast<std::size_t>(label)] = 1;
    }
  }
}

}  // namespace lockstep::io
