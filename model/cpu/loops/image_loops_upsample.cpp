#include <algorithm>

#include "model/cpu/clones.hpp"
#include "model/cpu/loops/image_loops.hpp"
#include "model/formulas/upsampling.hpp"

namespace lockstep::model::cpu {

namespace {

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }
std::int32_t narrow(std::int64_t extent) { return static_cast<std::int32_t>(extent); }

/// Image, plane and row of a row of a batch.
struct Row {
  std::size_t image;
  std::int32_t plane, row;
};
Row row_of(std::size_t row, const ImageShape& shape) {
  const std::size_t plane = row / size(shape.height), image = plane / size(shape.depth);
  return {image, narrow(static_cast<std::int64_t>(plane % size(shape.depth))),
          narrow(static_cast<std::int64_t>(row % size(shape.height)))};
}

/// sum = or += factor * from.
LOCKSTEP_INLINE void add_line(float factor, const float* from, std::size_t count, bool first, float* sum) {
  if (first) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = factor * from[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) sum[i] += factor * from[i];
  }
}

}  // namespace

std::size_t upsampling_scratch(const LinearUpsampling& shape) { return size(shape.out.width * shape.out.channels); }

// Both functions interpolate planes and rows by whole lines, then columns within the resulting line.

LOCKSTEP_CLONES void linear_upsampling(const LinearUpsampling& shape, const float* x, float* y, Slice rows,
                                       std::span<float> scratch) {
  const auto [depth_factor, height_factor, width_factor] = shape.factors();
  const std::size_t channels = size(shape.in.channels), line = size(shape.in.width) * channels,
                    plane = size(shape.in.height) * line;
  float* const sum = scratch.data();
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, shape.out);
    const formulas::LinearTap planes = formulas::linear_tap(at.plane, narrow(depth_factor), narrow(shape.in.depth)),
                              lines = formulas::linear_tap(at.row, narrow(height_factor), narrow(shape.in.height));
    const float* const from =
        x + at.image * size(shape.in.elements()) + size(planes.first) * plane + size(lines.first) * line;
    add_line((1 - planes.share) * (1 - lines.share), from, line, true, sum);
    if (lines.share > 0) add_line((1 - planes.share) * lines.share, from + line, line, false, sum);
    if (planes.share > 0) add_line(planes.share * (1 - lines.share), from + plane, line, false, sum);
    if (planes.share > 0 && lines.share > 0) {
      add_line(planes.share * lines.share, from + plane + line, line, false, sum);
    }
    float* to = y + row * size(shape.out.width) * channels;
    for (std::int32_t column = 0; column < narrow(shape.out.width); ++column, to += channels) {
      const formulas::LinearTap tap = formulas::linear_tap(column, narrow(width_factor), narrow(shape.in.width));
      const float* const left = sum + size(tap.first) * channels;
      if (tap.share == 0) {
        std::copy_n(left, channels, to);
        continue;
      }
      const float* const right = left + channels;
      const float rest = 1 - tap.share;
      for (std::size_t c = 0; c < channels; ++c) to[c] = rest * left[c] + tap.share * right[c];
    }
  }
}

LOCKSTEP_CLONES void linear_upsampling_gradient(const LinearUpsampling& shape, const float* d_y, float* d_x, Slice rows,
                                                std::span<float> scratch) {
  const auto [depth_factor, height_factor, width_factor] = shape.factors();
  const std::int32_t depth = narrow(shape.in.depth), height = narrow(shape.in.height), width = narrow(shape.in.width);
  const std::size_t channels = size(shape.in.channels), line = size(shape.out.width) * channels,
                    plane = size(shape.out.height) * line;
  float* const sum = scratch.data();
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, shape.in);
    const float* const from = d_y + at.image * size(shape.out.elements());
    const auto planes = formulas::linear_readers(at.plane, narrow(depth_factor), depth),
               lines = formulas::linear_readers(at.row, narrow(height_factor), height);
    bool first = true;
    for (std::int32_t p = planes.begin; p < planes.end; ++p) {
      const float of_plane = formulas::linear_share(at.plane, p, narrow(depth_factor), depth);
      for (std::int32_t q = lines.begin; q < lines.end; ++q) {
        const float share = of_plane * formulas::linear_share(at.row, q, narrow(height_factor), height);
        if (share == 0) continue;
        add_line(share, from + size(p) * plane + size(q) * line, line, first, sum);
        first = false;
      }
    }
    float* to = d_x + row * size(shape.in.width) * channels;
    for (std::int32_t column = 0; column < width; ++column, to += channels) {
      const auto columns = formulas::linear_readers(column, narrow(width_factor), width);
      bool begins = true;
      for (std::int32_t r = columns.begin; r < columns.end; ++r) {
        const float share = formulas::linear_share(column, r, narrow(width_factor), width);
        if (share == 0) continue;
        add_line(share, sum + size(r) * channels, channels, begins, to);
        begins = false;
      }
    }
  }
}

}  // namespace lockstep::model::cpu
