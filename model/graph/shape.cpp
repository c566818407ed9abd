#include "model/graph/shape.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

Shape::Shape(std::span<const std::int64_t> extents) : count_(extents.size()) {
  if (extents.empty() || extents.size() > kMaxExtents) {
    throw std::invalid_argument(fmt::format("a sample has 1 to {} extents, not {}", kMaxExtents, extents.size()));
  }
  std::int64_t room = kMaxElements;
  for (const std::int64_t extent : extents) {
    if (extent < 1) throw std::invalid_argument(fmt::format("an extent of {}: must be positive", extent));
    room /= extent;
  }
  if (room == 0)
    throw std::invalid_argument(fmt::format("a sample of {} elements is too large", fmt::join(extents, "x")));
  std::ranges::copy(extents, extents_.begin());
}

std::int64_t Shape::elements() const noexcept {
  return std::accumulate(extents_.begin(), extents_.begin() + static_cast<std::ptrdiff_t>(count_), std::int64_t{1},
                         std::multiplies<>());
}

Shape Shape::with_last(std::int64_t extent) const {
  auto extents = extents_;
  extents[count_ - 1] = extent;
  return Shape(std::span(extents.data(), count_));
}

ImageShape image_of(const Shape& shape, std::string_view reader) {
  const auto extents = shape.extents();
  if (extents.size() != 3) {
    throw std::invalid_argument(
        fmt::format("reads {}, and {} reads images: height x width x channels", to_string(shape), reader));
  }
  return {.height = extents[0], .width = extents[1], .channels = extents[2]};
}

std::string to_string(const Shape& shape) { return fmt::format("{}", fmt::join(shape.extents(), "x")); }

}  // namespace lockstep::model
