/// \file
/// Axes of a shape, and strides between its elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/shape.hpp"

namespace lockstep::model {

/// Returns the index of the extent that `axis` names: counted from the first, or from the last if negative. Throws
/// std::invalid_argument if there is no such extent.
inline std::size_t extent_of(std::int64_t axis, const Shape& shape) {
  const auto count = static_cast<std::int64_t>(shape.count());
  if (axis >= -count && axis < count) return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
  throw std::invalid_argument(
      fmt::format("has axis {}, and {} has {} to {}", axis, to_string(shape), -count, count - 1));
}

/// Returns for each extent the number of elements from one index to the next.
inline std::array<std::int64_t, Shape::kMaxExtents> steps_of(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxExtents> steps{};
  std::int64_t step = 1;
  for (std::size_t i = shape.count(); i-- > 0; step *= shape.extents()[i]) steps[i] = step;
  return steps;
}

}  // namespace lockstep::model
