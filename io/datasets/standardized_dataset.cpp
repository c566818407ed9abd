#include "io/datasets/standardized_dataset.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "io/files/element_cast.hpp"

namespace lockstep::io {
namespace {

std::span<float> floats_in(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void require_features(const FeatureScale& scale, const Field& field) {
  if (!scale.fits(field.elements())) {
    throw std::invalid_argument("a scale of other features than " + field.name + " has");
  }
}

}  // namespace

StandardizedDataset::StandardizedDataset(std::shared_ptr<Dataset> data, FeatureScale x, FeatureScale y)
    : DatasetView(std::move(data)), x_(std::move(x)), y_(std::move(y)) {
  require_features(x_, info().x);
  if (y_.empty()) return;
  if (info().labels_are_classes || info().y.name.empty()) throw std::invalid_argument("only targets have a scale");
  require_features(y_, info().y);
}

std::size_t StandardizedDataset::x_bytes() const noexcept {
  return x_.empty() ? data().x_bytes() : static_cast<std::size_t>(info().x.elements()) * sizeof(float);
}

std::size_t StandardizedDataset::y_bytes() const noexcept {
  return data().y_type() == FileType::float64 ? data().y_bytes() / 2 : data().y_bytes();
}

void StandardizedDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                               std::span<std::byte> y) const {
  const bool wide_y = data().y_type() == FileType::float64 && !y.empty();
  std::vector<double> targets(wide_y ? y.size() / sizeof(float) : 0);
  const std::span<std::byte> delivered_y = wide_y ? std::as_writable_bytes(std::span(targets)) : y;
  if (x_.empty() || x.empty() || data().x_type() == FileType::float32) {
    data().read(samples, epoch, x, delivered_y);
    if (!x_.empty() && !x.empty()) x_.apply(floats_in(x));
  } else if (data().x_type() == FileType::float64) {
    std::vector<double> stored(x.size() / sizeof(float));
    data().read(samples, epoch, std::as_writable_bytes(std::span(stored)), delivered_y);
    x_.apply(stored, floats_in(x));
  } else {
    std::vector<std::byte> stored(samples.size() * data().x_bytes());
    data().read(samples, epoch, stored, delivered_y);
    with_elements(data().x_type(), stored, [&](auto elements) {
      std::transform(elements.begin(), elements.end(), floats_in(x).begin(),
                     [](auto element) { return static_cast<float>(element); });
    });
    x_.apply(floats_in(x));
  }
  if (wide_y) {
    y_.apply(targets, floats_in(y));
  } else if (!y_.empty()) {
    y_.apply(floats_in(y));
  }
}

}  // namespace lockstep::io
