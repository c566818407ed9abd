/// \file
/// Linear interpolation along one direction of an upsampling by a whole factor. Reference, CPU and GPU share it.
///
/// The centre of output position p lies at input position s = (p + 1/2) / factor - 1/2, clamped to the input
/// (half-pixel centres, align_corners false). y[p] = (1 - share) x[first] + share x[first + 1], first = floor(s), share
/// = s - first. Directions are interpolated one after the other. A position with share 0 reads only x[first].
#pragma once

#include <cstdint>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

struct LinearTap {
  std::int32_t first;
  float share;  ///< weight of first + 1
};

/// Returns the input positions that output position `p` reads. in: extent of the input.
LOCKSTEP_HOST_DEVICE LinearTap linear_tap(std::int32_t p, std::int32_t factor, std::int32_t in) {
  const std::int32_t position = 2 * p + 1 - factor;  // s, times 2 factor
  if (position <= 0) return {0, 0};
  const std::int32_t first = position / (2 * factor);
  if (first + 1 >= in) return {in - 1, 0};
  return {first, static_cast<float>(position % (2 * factor)) / static_cast<float>(2 * factor)};
}

/// Returns the factor of input position `from` in output position `p`.
LOCKSTEP_HOST_DEVICE float linear_share(std::int32_t from, std::int32_t p, std::int32_t factor, std::int32_t in) {
  const LinearTap tap = linear_tap(p, factor, in);
  return from == tap.first ? 1 - tap.share : from == tap.first + 1 ? tap.share : 0.0f;
}

/// Output positions [begin, end) that read an input position `from`.
struct LinearReaders {
  std::int32_t begin, end;
};
LOCKSTEP_HOST_DEVICE LinearReaders linear_readers(std::int32_t from, std::int32_t factor, std::int32_t in) {
  // Readers have from - 1 < s < from + 1. The first and the last input position are also read beyond the edges.
  const std::int32_t begin = ((2 * from - 1) * factor + 1) / 2, end = (2 * from + 3) * factor / 2, all = in * factor;
  return {begin < 0 ? 0 : begin, end > all ? all : end};
}

}  // namespace lockstep::model::formulas
