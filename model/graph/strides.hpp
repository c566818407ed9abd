/// \file
/// Extents of a value by number, and steps between its elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/shape.hpp"

namespace lockstep::model {

/// The extent that `axis` names: from the first on, or, below 0, from the last. Throws std::invalid_argument if there
/// is none.
inline std::size_t extent_of(std::int64_t axis, const Shape& shape) {
  const auto count = static_cast<std::int64_t>(shape.count());
  if (axis >= -count && axis < count) return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
  throw std::invalid_argument(
      fmt::format("has axis {}, and {} has {} to {}", axis, to_string(shape), -count, count - 1));
}

/// Elements from one index of each extent to the next.
inline std::array<std::int64_t, Shape::kMaxExtents> steps_of(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxExtents> steps{};
  std::int64_t step = 1;
  for (std::size_t i = shape.count(); i-- > 0; step *= shape.extents()[i]) steps[i] = step;
  return steps;
}

}  // namespace lockstep::model
