#include "model/cpu/bf16/panels.hpp"

#include <algorithm>

namespace lockstep::model::cpu {

// A factor whose rows run across the panels is packed step by step, through all panels: a panel needs only 128 bytes of
// each row, and rows are often pages apart.

void pack_left_panels(const Bf16Kernels& kernels, const Bf16Factor& a, std::size_t rows, std::size_t inner,
                      Bf16* panels) {
  const std::size_t next = bf16_panel_elements(inner), part = a.transposed ? kBf16Panel : inner;
  for (std::size_t k = 0; k < inner; k += part, panels += kBf16Step) {
    Bf16* to = panels;
    for (std::size_t row = 0; row < rows; row += kBf16Panel, to += next) {
      kernels.pack_left(a.from(row, k), std::min(kBf16Panel, rows - row), std::min(part, inner - k), to);
    }
  }
}

void pack_right_panels(const Bf16Kernels& kernels, const Bf16Factor& b, std::size_t inner, std::size_t columns,
                       Bf16* panels, std::size_t next) {
  const std::size_t part = b.transposed ? inner : kBf16Panel;
  for (std::size_t k = 0; k < inner; k += part, panels += kBf16Step) {
    Bf16* to = panels;
    for (std::size_t o = 0; o < columns; o += kBf16Panel, to += next) {
      kernels.pack_right(b.from(k, o), std::min(part, inner - k), std::min(kBf16Panel, columns - o), to);
    }
  }
}

void PanelProducts::add(const ProductShape& shape, const Bf16* left, const RightPanels& right, bool accumulate,
                        float* c, std::size_t stride) {
  const std::size_t rows = shape.rows, steps = bf16_panels(shape.inner);
  if (kernels_.begin != nullptr && prepared_ != rows) kernels_.begin(prepared_ = rows);
  const Bf16* panel = right.data;
  for (std::size_t o = 0; o < shape.columns; o += kBf16Panel, panel += right.next) {
    const std::size_t columns = std::min(kBf16Panel, shape.columns - o);
    float* const to = c + o;
    if (columns == kBf16Panel) {
      multiply_(rows, steps, left, panel, to, stride, accumulate);
      continue;
    }
    // For the last columns: computes a whole panel in `edge`.
    alignas(64) float edge[kBf16Panel * kBf16Panel] = {};
    for (std::size_t i = 0; accumulate && i < rows; ++i) std::copy_n(to + i * stride, columns, edge + i * kBf16Panel);
    multiply_(rows, steps, left, panel, edge, kBf16Panel, accumulate);
    for (std::size_t i = 0; i < rows; ++i) std::copy_n(edge + i * kBf16Panel, columns, to + i * stride);
  }
}

void PanelProducts::add(const ProductShape& shape, const Bf16* left, const RightPanels& right, const Strip& strip) {
  thread_local PanelMemory memory;
  // Uses one block as long as both panels fit the second-level cache: keeping sums for further blocks costs more.
  constexpr std::size_t kMaxInner = 2048;
  const std::size_t rows = shape.rows, count = bf16_panels(shape.columns);
  if (kernels_.begin != nullptr && prepared_ != rows) kernels_.begin(prepared_ = rows);
  // With one block, a tile is passed on while the next one is computed; both stay in the first-level cache.
  const bool keeps = strip.tiles != nullptr || shape.inner > kMaxInner;
  const std::size_t places = keeps ? count : std::min<std::size_t>(count, 2);
  float* const tiles =
      strip.tiles != nullptr
          ? strip.tiles
          : reinterpret_cast<float*>(memory.reserve(places * kSumsTile * sizeof(float) / sizeof(Bf16)));
  for (std::size_t p = 0; p < shape.inner; p += kMaxInner) {
    const bool is_last = strip.take != nullptr && p + kMaxInner >= shape.inner;
    const auto take = [&](std::size_t i) {
      (*strip.take)({.sums = tiles + i % places * kSumsTile,
                     .row = strip.row,
                     .column = strip.column + i * kBf16Panel,
                     .rows = rows,
                     .columns = std::min(kBf16Panel, shape.columns - i * kBf16Panel)});
    };
    const std::size_t offset = p / kBf16Panel * kBf16Step, steps = bf16_panels(std::min(kMaxInner, shape.inner - p));
    for (std::size_t i = 0; i < count; ++i) {
      multiply_(rows, steps, left + offset, right.data + i * right.next + offset, tiles + i % places * kSumsTile,
                kBf16Panel, strip.accumulate || p > 0);
      if (is_last && i > 0) take(i - 1);
    }
    if (is_last) take(count - 1);
  }
}

}  // namespace lockstep::model::cpu
