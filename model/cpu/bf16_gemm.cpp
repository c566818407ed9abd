#include "model/cpu/bf16_gemm.hpp"

#include <algorithm>
#include <cassert>
#include <memory>
#include <new>

#include "model/cpu/bf16_kernels.hpp"

namespace lockstep::model::cpu {

namespace {

static_assert(kPackedGranule == kBf16Panel);

constexpr std::size_t kMaxInner = 768;
/// Panels of the right factor that stay in the second-level cache.
constexpr std::size_t kRightElements = (std::size_t{512} << 10) / sizeof(Bf16);
/// Panels of the left factor that wait for other columns.
constexpr std::size_t kLeftElements = (std::size_t{2} << 20) / sizeof(Bf16);
static_assert(kRightElements >= kMaxInner * kBf16Panel && kLeftElements >= kRightElements);

/// Workspace of one thread, aligned to cache lines.
struct Workspace {
  struct Free {
    void operator()(Bf16* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  static std::unique_ptr<Bf16[], Free> make(std::size_t elements) {
    return std::unique_ptr<Bf16[], Free>(
        static_cast<Bf16*>(::operator new[](elements * sizeof(Bf16), std::align_val_t{64})));
  }
  std::unique_ptr<Bf16[], Free> left = make(kLeftElements), right = make(kRightElements);
};

Workspace& workspace() {
  thread_local Workspace own;
  return own;
}

/// Extents of the blocks of a product. Those of the inner dimension are nearly equal, and whole steps.
struct Blocks {
  Blocks(const Bf16Kernels& kernels, const ProductShape& shape) {
    const std::size_t most = std::min(kernels.max_inner, kMaxInner), count = (shape.inner + most - 1) / most;
    inner = bf16_panels((shape.inner + count - 1) / count) * kBf16Panel;
    columns = kRightElements / (inner * kBf16Panel) * kBf16Panel;
    keeps_left = shape.columns > columns;
    rows = keeps_left ? kLeftElements / (inner * kBf16Panel) * kBf16Panel : shape.rows;
  }
  std::size_t inner, columns, rows;
  bool keeps_left;  ///< left panels are packed once for all columns; otherwise one after the other in one place
};

/// Some panels of a right factor, each of a block of the inner dimension; `stride` elements from one to the next.
struct Panels {
  const Bf16* data = nullptr;
  std::size_t stride = 0;
};

/// Left panels of a block, and whether they are there already.
enum class Left { pack, pack_and_keep, kept };

/// The contribution of a block of the inner dimension to a block of c. `a` begins at the block.
void add_block(const Bf16Kernels& kernels, const ProductShape& block, const Factor& a, Left how, const Panels& panels,
               bool accumulate, float* c, std::size_t stride) {
  const auto multiply = a.transposed && kernels.multiply_turned != nullptr ? kernels.multiply_turned : kernels.multiply;
  const std::size_t steps = bf16_panels(block.inner), next = how == Left::pack ? 0 : steps * kBf16Step;
  Bf16* left = workspace().left.get();
  std::size_t prepared = 0;
  for (std::size_t row = 0; row < block.rows; row += kBf16Panel, left += next) {
    const std::size_t rows = std::min(kBf16Panel, block.rows - row);
    if (how != Left::kept) kernels.pack_left(a.from(row, 0), rows, block.inner, left);
    if (kernels.begin != nullptr && prepared != rows) kernels.begin(prepared = rows);
    for (std::size_t o = 0; o < block.columns; o += kBf16Panel) {
      const Bf16* const right = panels.data + o / kBf16Panel * panels.stride;
      const std::size_t columns = std::min(kBf16Panel, block.columns - o);
      float* const to = c + row * stride + o;
      if (columns == kBf16Panel) {
        multiply(rows, steps, left, right, to, stride, accumulate);
        continue;
      }
      // The last columns: computes a panel beside c.
      alignas(64) float edge[kBf16Panel * kBf16Panel] = {};
      for (std::size_t i = 0; accumulate && i < rows; ++i) std::copy_n(to + i * stride, columns, edge + i * kBf16Panel);
      multiply(rows, steps, left, right, edge, kBf16Panel, accumulate);
      for (std::size_t i = 0; i < rows; ++i) std::copy_n(edge + i * kBf16Panel, columns, to + i * stride);
    }
  }
  if (kernels.end != nullptr) kernels.end();
}

/// c = or += a b. panels_of(p, o, inner, columns) makes the panels of the block of b that begins at row p, column o.
template <class PanelsOf>
void product(Bf16Unit unit, const ProductShape& shape, const Factor& a, Accumulate accumulate, float* c,
             std::size_t stride, const PanelsOf& panels_of) {
  const Bf16Kernels& kernels = bf16_kernels(unit);
  const Blocks blocks(kernels, shape);
  for (std::size_t p = 0; p < shape.inner; p += blocks.inner) {
    const std::size_t inner = std::min(blocks.inner, shape.inner - p);
    for (std::size_t row = 0; row < shape.rows; row += blocks.rows) {
      const std::size_t rows = std::min(blocks.rows, shape.rows - row);
      for (std::size_t o = 0; o < shape.columns; o += blocks.columns) {
        const std::size_t columns = std::min(blocks.columns, shape.columns - o);
        const Left left = !blocks.keeps_left ? Left::pack : o == 0 ? Left::pack_and_keep : Left::kept;
        add_block(kernels, {rows, columns, inner}, a.from(row, p), left, panels_of(p, o, inner, columns),
                  accumulate == Accumulate::yes || p > 0, c + row * stride + o, stride);
      }
    }
  }
}

}  // namespace

void bf16_gemm(Bf16Unit unit, const ProductShape& shape, const Factor& a, const Factor& b, Accumulate accumulate,
               float* c, std::size_t stride) {
  Bf16* const right = workspace().right.get();
  const auto pack = [&](std::size_t p, std::size_t o, std::size_t inner, std::size_t columns) {
    const std::size_t panel = bf16_panels(inner) * kBf16Step;
    for (std::size_t q = 0; q < columns; q += kBf16Panel) {
      bf16_kernels(unit).pack_right(b.from(p, o + q), inner, std::min(kBf16Panel, columns - q),
                                    right + q / kBf16Panel * panel);
    }
    return Panels{right, panel};
  };
  product(unit, shape, a, accumulate, c, stride, pack);
}

std::size_t bf16_packed_floats(std::size_t inner, std::size_t columns) noexcept {
  constexpr std::size_t kToAlign = 16;
  return bf16_panels(inner) * bf16_panels(columns) * kBf16Step * sizeof(Bf16) / sizeof(float) + kToAlign;
}

Bf16PackedFactor bf16_pack_right(Bf16Unit unit, const Factor& b, std::size_t inner, std::size_t columns,
                                 std::span<float> memory) {
  assert(memory.size() >= bf16_packed_floats(inner, columns));
  void* at = memory.data();
  std::size_t space = memory.size_bytes();
  auto* const packed = static_cast<Bf16*>(std::align(64, space - 64, at, space));
  const std::size_t panel = bf16_panels(inner) * kBf16Step;
  for (std::size_t o = 0; o < columns; o += kBf16Panel) {
    bf16_kernels(unit).pack_right(b.from(0, o), inner, std::min(kBf16Panel, columns - o),
                                  packed + o / kBf16Panel * panel);
  }
  return {packed, inner, columns};
}

void bf16_product_with_packed(Bf16Unit unit, const ProductShape& shape, const Factor& a, const Bf16PackedFactor& b,
                              std::size_t begin, Accumulate accumulate, float* c, std::size_t stride) {
  assert(begin % kBf16Panel == 0 && begin + shape.columns <= b.columns && shape.inner <= b.inner);
  const std::size_t panel = bf16_panels(b.inner) * kBf16Step;
  product(unit, shape, a, accumulate, c, stride, [&](std::size_t p, std::size_t o, std::size_t, std::size_t) {
    return Panels{b.data + (begin + o) / kBf16Panel * panel + p / kBf16Panel * kBf16Step, panel};
  });
}

}  // namespace lockstep::model::cpu
