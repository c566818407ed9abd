/// \file
/// Linear interpolation along one direction of an upsampling by a whole factor. Reference, CPU and GPU share it.
///
/// The centre of place p of the output lies at s = (p + 1/2) / factor - 1/2 of the input, cut to its places (half-pixel
/// centres, align_corners false). y[p] = (1 - share) x[first] + share x[first + 1], first = floor(s), share = s -
/// first. Several directions are interpolated one after the other. A place with share 0 reads `first` alone.
#pragma once

#include <cstdint>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

struct LinearTap {
  std::int32_t first;
  float share;  ///< weight of first + 1
};

/// The places of an input of extent `in` that place `p` of the output reads.
LOCKSTEP_HOST_DEVICE LinearTap linear_tap(std::int32_t p, std::int32_t factor, std::int32_t in) {
  const std::int32_t position = 2 * p + 1 - factor;  // s, times 2 factor
  if (position <= 0) return {0, 0};
  const std::int32_t first = position / (2 * factor);
  if (first + 1 >= in) return {in - 1, 0};
  return {first, static_cast<float>(position % (2 * factor)) / static_cast<float>(2 * factor)};
}

/// The factor of place `from` of the input in place `p` of the output.
LOCKSTEP_HOST_DEVICE float linear_share(std::int32_t from, std::int32_t p, std::int32_t factor, std::int32_t in) {
  const LinearTap tap = linear_tap(p, factor, in);
  return from == tap.first ? 1 - tap.share : from == tap.first + 1 ? tap.share : 0.0f;
}

/// The places [begin, end) of the output that read place `from` of the input.
struct LinearReaders {
  std::int32_t begin, end;
};
LOCKSTEP_HOST_DEVICE LinearReaders linear_readers(std::int32_t from, std::int32_t factor, std::int32_t in) {
  // from - 1 < s < from + 1; the first and the last place are read beyond them, too.
  const std::int32_t begin = ((2 * from - 1) * factor + 1) / 2, end = (2 * from + 3) * factor / 2, all = in * factor;
  return {begin < 0 ? 0 : begin, end > all ? all : end};
}

}  // namespace lockstep::model::formulas
