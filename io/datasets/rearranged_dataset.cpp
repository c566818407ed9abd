#include "io/datasets/rearranged_dataset.hpp"

#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

namespace lockstep::io {
namespace {

void require_places(const std::vector<std::int64_t>& places, std::int64_t least, std::int64_t end) {
  for (const std::int64_t place : places) {
    if (place < least || place >= end) throw std::invalid_argument("an arrangement of numbers that are not there");
  }
}

/// Copies the elements at `places` from each row; -1 gives zero bytes, which are 0 in every type of number.
void gather(std::span<const std::byte> from, std::size_t row_bytes, std::size_t element,
            std::span<const std::int64_t> places, std::span<std::byte> to) {
  std::byte* out = to.data();
  for (std::size_t row = 0; row < from.size(); row += row_bytes) {
    for (const std::int64_t place : places) {
      if (place < 0) {
        std::memset(out, 0, element);
      } else {
        std::memcpy(out, from.data() + row + static_cast<std::size_t>(place) * element, element);
      }
      out += element;
    }
  }
}

}  // namespace

RearrangedDataset::RearrangedDataset(std::shared_ptr<Dataset> data, Arrangement arrangement, TableSchema table)
    : DatasetView(std::move(data)), arrangement_(std::move(arrangement)), info_(this->data().info()) {
  if (info_.x.sample_shape.size() != 1) throw std::invalid_argument("samples that are no rows of a table");
  if (!arrangement_.features.empty()) {
    require_places(arrangement_.features, -1, info_.x.elements());
    info_.x.sample_shape = {static_cast<std::int64_t>(arrangement_.features.size())};
  }
  if (!arrangement_.targets.empty()) {
    if (info_.labels_are_classes || info_.y.name.empty()) throw std::invalid_argument("only targets are arranged");
    require_places(arrangement_.targets, 0, info_.y.elements());
    const auto targets = static_cast<std::int64_t>(arrangement_.targets.size());
    info_.y.sample_shape = targets == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{targets};
  }
  info_.table = std::move(table);
}

std::size_t RearrangedDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info_.x.elements()) * size_of(x_type());
}

std::size_t RearrangedDataset::y_bytes() const noexcept {
  return arrangement_.targets.empty() ? data().y_bytes() : arrangement_.targets.size() * size_of(y_type());
}

void RearrangedDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                             std::span<std::byte> y) const {
  std::vector<std::byte> stored_x, stored_y;
  const auto room = [&](bool arranged, std::vector<std::byte>& memory, std::size_t bytes, std::span<std::byte> out) {
    if (!arranged) return out;
    memory.resize(samples.size() * bytes);
    return std::span(memory);
  };
  const bool features = !arrangement_.features.empty() && !x.empty(), targets = !arrangement_.targets.empty();
  data().read(samples, epoch, room(features, stored_x, data().x_bytes(), x),
              room(targets, stored_y, data().y_bytes(), y));
  if (features) gather(stored_x, data().x_bytes(), size_of(x_type()), arrangement_.features, x);
  if (targets) gather(stored_y, data().y_bytes(), size_of(y_type()), arrangement_.targets, y);
}

}  // namespace lockstep::io
