#include "model/cpu/bf16/gemm.hpp"

#include <algorithm>
#include <cassert>
#include <memory>

#include "model/cpu/bf16/panels.hpp"

namespace lockstep::model::cpu {

namespace {

static_assert(kPackedGranule == kBf16Panel);

constexpr std::size_t kMaxInner = 1024;
/// Elements of right panels in a block: they stay in the second-level cache.
constexpr std::size_t kRightElements = (std::size_t{640} << 10) / sizeof(Bf16);
/// The same for products whose sums go to a TakeSums, which need the whole inner dimension.
constexpr std::size_t kWholeRight = (std::size_t{1} << 20) / sizeof(Bf16);
/// Elements of left panels that are kept for other columns.
constexpr std::size_t kLeftElements = (std::size_t{2} << 20) / sizeof(Bf16);
static_assert(kRightElements >= kMaxInner * kBf16Panel && kLeftElements >= kRightElements);

/// Panels of one thread.
struct Workspace {
  PanelMemory left{kLeftElements}, right{kRightElements};
};

Workspace& workspace() {
  thread_local Workspace own;
  return own;
}

/// Extents of the blocks of a product. Blocks of the inner dimension are nearly equal and consist of whole steps.
struct Blocks {
  Blocks(const Bf16Kernels& kernels, const ProductShape& shape, bool turned) {
    const std::size_t most = std::min(kernels.max_inner, kMaxInner), count = (shape.inner + most - 1) / most;
    inner = bf16_panels((shape.inner + count - 1) / count) * kBf16Panel;
    columns = kRightElements / (inner * kBf16Panel) * kBf16Panel;
    keeps_left = turned || shape.columns > columns;
    rows = keeps_left ? kLeftElements / (inner * kBf16Panel) * kBf16Panel : shape.rows;
  }
  std::size_t inner, columns, rows;
  bool keeps_left;  ///< left panels are packed once for all columns; else one at a time, in the same memory
};

/// Selects if left panels of a block are packed when they are needed, or have been kept.
enum class Left { pack, kept };

/// Adds the contribution of a block of the inner dimension to a block of c. `a` begins at the block.
void add_block(const Bf16Kernels& kernels, const ProductShape& block, const Bf16Factor& a, Left how,
               const RightPanels& panels, bool accumulate, float* c, std::size_t stride, const Finish& finish) {
  PanelProducts products(kernels, a.transposed);
  Bf16* left = workspace().left.data();
  for (std::size_t row = 0; row < block.rows; row += kBf16Panel) {
    const std::size_t rows = std::min(kBf16Panel, block.rows - row);
    if (how == Left::pack) kernels.pack_left(a.from(row, 0), rows, block.inner, left);
    products.add({rows, block.columns, block.inner}, left, panels, accumulate, c + row * stride, stride);
    finish(c + row * stride, rows, block.columns);
    if (how == Left::kept) left += bf16_panel_elements(block.inner);
  }
}

/// c = or += a b. panels_of(p, o, inner, columns) returns the panels of the block of b that begins at row p, column o.
template <class PanelsOf>
void product(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, Accumulate accumulate, float* c,
             std::size_t stride, const Finish& finish, const PanelsOf& panels_of) {
  const Bf16Kernels& kernels = bf16_kernels(unit);
  const Blocks blocks(kernels, shape, a.transposed);
  for (std::size_t p = 0; p < shape.inner; p += blocks.inner) {
    const std::size_t inner = std::min(blocks.inner, shape.inner - p);
    const bool is_last = p + inner == shape.inner;
    for (std::size_t row = 0; row < shape.rows; row += blocks.rows) {
      const std::size_t rows = std::min(blocks.rows, shape.rows - row);
      const Bf16Factor block = a.from(row, p);
      if (blocks.keeps_left) pack_left_panels(kernels, block, rows, inner, workspace().left.data());
      for (std::size_t o = 0; o < shape.columns; o += blocks.columns) {
        const std::size_t columns = std::min(blocks.columns, shape.columns - o);
        add_block(kernels, {rows, columns, inner}, block, blocks.keeps_left ? Left::kept : Left::pack,
                  panels_of(p, o, inner, columns), accumulate == Accumulate::yes || p > 0, c + row * stride + o, stride,
                  is_last ? finish : Finish());
      }
    }
  }
}

/// The same for rows that fit one left panel, with packed right panels. Each right panel is read once.
void product_of_few_rows(const Bf16Kernels& kernels, const ProductShape& shape, const Bf16Factor& a,
                         const RightPanels& panels, Accumulate accumulate, float* c, std::size_t stride,
                         PanelOrder order) {
  const std::size_t step = Blocks(kernels, shape, a.transposed).inner, count = bf16_panels(shape.columns);
  Bf16* const left = workspace().left.data();
  kernels.pack_left(a, shape.rows, shape.inner, left);
  PanelProducts products(kernels, a.transposed);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t panel = order == PanelOrder::ascending ? i : count - 1 - i, o = panel * kBf16Panel;
    for (std::size_t p = 0; p < shape.inner; p += step) {
      const std::size_t offset = p / kBf16Panel * kBf16Step;
      products.add({shape.rows, std::min(kBf16Panel, shape.columns - o), std::min(step, shape.inner - p)},
                   left + offset, {panels.data + panel * panels.next + offset, panels.next},
                   accumulate == Accumulate::yes || p > 0, c + o, stride);
    }
  }
}

}  // namespace

void bf16_gemm(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
               Accumulate accumulate, float* c, std::size_t stride, const Finish& finish) {
  Bf16* const right = workspace().right.data();
  const auto pack = [&](std::size_t p, std::size_t o, std::size_t inner, std::size_t columns) {
    const std::size_t next = bf16_panel_elements(inner);
    pack_right_panels(bf16_kernels(unit), b.from(p, o), inner, columns, right, next);
    return RightPanels{right, next};
  };
  product(unit, shape, a, accumulate, c, stride, finish, pack);
}

void bf16_product(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
                  const SumsPlace& place, const TakeSums& take) {
  const Bf16Kernels& kernels = bf16_kernels(unit);
  const std::size_t panel = bf16_panel_elements(shape.inner), all = bf16_panels(shape.columns);
  const std::size_t panels = std::min(all, std::max<std::size_t>(1, kWholeRight / panel));
  Bf16* const left = workspace().left.reserve(panel);
  Bf16* const right = workspace().right.reserve(panels * panel);
  PanelProducts products(kernels, a.transposed);
  for (std::size_t o = 0; o < shape.columns; o += panels * kBf16Panel) {
    const std::size_t columns = std::min(panels * kBf16Panel, shape.columns - o);
    pack_right_panels(kernels, b.from(0, o), shape.inner, columns, right, panel);
    for (std::size_t row = 0; row < shape.rows; row += kBf16Panel) {
      const std::size_t rows = std::min(kBf16Panel, shape.rows - row);
      kernels.pack_left(a.from(row, 0), rows, shape.inner, left);
      products.add({rows, columns, shape.inner}, left, {right, panel},
                   {.take = &take, .row = place.row + row, .column = place.column + o});
    }
  }
}

std::size_t bf16_packed_floats(std::size_t inner, std::size_t columns) noexcept {
  constexpr std::size_t kToAlign = 16;
  return bf16_panels(inner) * bf16_panels(columns) * kBf16Step * sizeof(Bf16) / sizeof(float) + kToAlign;
}

Bf16PackedFactor bf16_pack_right(Bf16Unit unit, const Bf16Factor& b, std::size_t inner, std::size_t columns,
                                 std::span<float> memory) {
  assert(memory.size() >= bf16_packed_floats(inner, columns));
  void* at = memory.data();
  std::size_t space = memory.size_bytes();
  auto* const packed = static_cast<Bf16*>(std::align(64, space - 64, at, space));
  pack_right_panels(bf16_kernels(unit), b, inner, columns, packed, bf16_panel_elements(inner));
  return {packed, inner, columns};
}

void bf16_product_with_packed(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16PackedFactor& b,
                              std::size_t begin, Accumulate accumulate, float* c, std::size_t stride,
                              PanelOrder order) {
  assert(begin % kBf16Panel == 0 && begin + shape.columns <= b.columns && shape.inner <= b.inner);
  const std::size_t next = bf16_panel_elements(b.inner);
  const Bf16* const first = b.data + begin / kBf16Panel * next;
  if (shape.rows <= kBf16Panel && bf16_panel_elements(shape.inner) <= kLeftElements) {
    return product_of_few_rows(bf16_kernels(unit), shape, a, {first, next}, accumulate, c, stride, order);
  }
  product(unit, shape, a, accumulate, c, stride, {}, [&](std::size_t p, std::size_t o, std::size_t, std::size_t) {
    return RightPanels{first + o / kBf16Panel * next + p / kBf16Panel * kBf16Step, next};
  });
}

}  // namespace lockstep::model::cpu
