#include "model/cpu/blocked_gemm.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "model/cpu/clones.hpp"
#include "model/cpu/instruction_sets.hpp"

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kMaxInner = 768;
constexpr std::size_t kBlockRows = 168;  ///< rows of a: at most 504 KiB, for the second-level cache
constexpr std::size_t kBlockColumns = 1024;
constexpr std::size_t kLine = 16;        ///< floats
constexpr std::size_t kMaxRows = 12;     ///< rows of a tile
constexpr std::size_t kMaxColumns = 32;  ///< columns of a tile

/// Selects where a tile reads its rows of a: in a panel [inner][rows], or in the factor, rows `a_stride` elements
/// apart.
enum class InPlace : bool { no, yes };

/// Computes one tile of c; its number of rows is a template argument. b: [inner][tile's columns].
using Tile = void (*)(std::size_t inner, const float* a, std::size_t a_stride, const float* b, float* c,
                      std::size_t stride, bool accumulate);

// Accessed by memcpy, because rows of c may be unaligned.
using Sixteen = float __attribute__((vector_size(64)));
using Eight = float __attribute__((vector_size(32)));
using Four = float __attribute__((vector_size(16)));

// The same text for each instruction set. Vector code is lowered in the function that defines it, before any inlining,
// so a common inline function would be compiled for the baseline.
#define LOCKSTEP_TILE(name, Vector, attribute)                                                                       \
  template <std::size_t kRows, std::size_t kVectors, InPlace kInPlace>                                               \
  attribute void name(std::size_t inner, const float* __restrict a, std::size_t a_stride, const float* __restrict b, \
                      float* __restrict c, std::size_t stride, bool accumulate) {                                    \
    constexpr std::size_t kWidth = sizeof(Vector) / sizeof(float);                                                   \
    /* A few pointers reach all rows in place, so that the registers suffice. */                                     \
    constexpr std::size_t kGroup = 3, kGroups = (kRows + kGroup - 1) / kGroup;                                       \
    const float* rows[kGroups];                                                                                      \
    for (std::size_t g = 0; g < kGroups; ++g) rows[g] = kInPlace == InPlace::yes ? a + g * kGroup * a_stride : a;    \
    /* Prefetches the tile of c while the sums are made. */                                                          \
    _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                               \
      for (std::size_t v = 0; v < kVectors; ++v) __builtin_prefetch(c + i * stride + v * kWidth, 1);                 \
    }                                                                                                                \
    Vector sums[kRows][kVectors] = {};                                                                               \
    for (std::size_t p = 0; p < inner; ++p) {                                                                        \
      Vector right[kVectors];                                                                                        \
      _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) {                                           \
        std::memcpy(&right[v], b + v * kWidth, sizeof(Vector));                                                      \
      }                                                                                                              \
      _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                             \
        const float left = kInPlace == InPlace::yes ? rows[i / kGroup][i % kGroup * a_stride] : a[i];                \
        _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) sums[i][v] += left * right[v];            \
      }                                                                                                              \
      if constexpr (kInPlace == InPlace::yes) {                                                                      \
        for (std::size_t g = 0; g < kGroups; ++g) ++rows[g];                                                         \
      } else {                                                                                                       \
        a += kRows;                                                                                                  \
      }                                                                                                              \
      b += kVectors * kWidth;                                                                                        \
    }                                                                                                                \
    _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                               \
      _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) {                                           \
        float* const to = c + i * stride + v * kWidth;                                                               \
        Vector before = {};                                                                                          \
        if (accumulate) std::memcpy(&before, to, sizeof(Vector));                                                    \
        const Vector sum = accumulate ? before + sums[i][v] : sums[i][v];                                            \
        std::memcpy(to, &sum, sizeof(Vector));                                                                       \
      }                                                                                                              \
    }                                                                                                                \
  }

LOCKSTEP_TILE(tile_of_sixteens, Sixteen, LOCKSTEP_TARGET("x86-64-v4"))
LOCKSTEP_TILE(tile_of_eights, Eight, LOCKSTEP_TARGET("x86-64-v3"))
#undef LOCKSTEP_TILE

/// By number of rows.
using Tiles = std::array<Tile, kMaxRows + 1>;

struct Kernels {
  const char* instruction_set = nullptr;
  std::size_t rows = 0, columns = 0;  ///< extents of a whole tile
  std::size_t inner = 0;              ///< most steps of a block
  Tiles wide{}, wide_in_place{};      ///< two vectors wide
  Tiles narrow{}, narrow_in_place{};  ///< one vector wide, for the last columns
};

template <std::size_t... kRows>
Kernels sixteens(std::index_sequence<kRows...>) {
  return {"x86-64-v4",
          12,
          32,
          kMaxInner,
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::yes>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 1, InPlace::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 1, InPlace::yes>...}};
}
template <std::size_t... kRows>
Kernels eights(std::index_sequence<kRows...>) {
  return {"x86-64-v3",
          6,
          16,
          kMaxInner / 2,
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::yes>...},
          {nullptr, &tile_of_eights<kRows + 1, 1, InPlace::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 1, InPlace::yes>...}};
}

Kernels choose_kernels() {
  if (LOCKSTEP_SUPPORTS("x86-64-v4")) return sixteens(std::make_index_sequence<12>());
  if (LOCKSTEP_SUPPORTS("x86-64-v3")) return eights(std::make_index_sequence<6>());
  return {};
}

const Kernels& kernels() {
  static const Kernels chosen = choose_kernels();
  return chosen;
}

/// Nearly equal blocks, as a function of the inner dimension alone.
std::size_t block_inner(std::size_t inner) {
  const std::size_t blocks = (inner + kernels().inner - 1) / kernels().inner;
  return (inner + blocks - 1) / blocks;
}

std::size_t rounded_up(std::size_t count, std::size_t granule) { return (count + granule - 1) / granule * granule; }

/// Packs panels [inner][kWidth], one after another, from consecutive rows: lane l of step p of panel q is source[p *
/// stride + q * kWidth + l]. Goes step by step through a few panels at once, because rows are often pages apart.
template <std::size_t kWidth>
LOCKSTEP_INLINE void pack_whole_along(const float* source, std::size_t stride, std::size_t inner, std::size_t panels,
                                      float* packed) {
  constexpr std::size_t kTogether = 4;
  constexpr std::size_t kAhead = 6;
  for (std::size_t first = 0; first < panels; first += kTogether) {
    const std::size_t count = std::min(kTogether, panels - first);
    const float* from = source + first * kWidth;
    float* const to = packed + first * kWidth * inner;
    for (std::size_t p = 0; p < inner; ++p, from += stride) {
      for (std::size_t q = 0; q < count; ++q) {
        __builtin_prefetch(from + kAhead * stride + q * kWidth);
        std::memcpy(to + q * kWidth * inner + p * kWidth, from + q * kWidth, kWidth * sizeof(float));
      }
    }
  }
}

/// Packs one panel [inner][width] of `lanes` lanes; the others become zero.
void pack_along(const float* source, std::size_t stride, std::size_t inner, std::size_t lanes, std::size_t width,
                float* panel) {
  for (std::size_t p = 0; p < inner; ++p, source += stride, panel += width) {
    for (std::size_t i = 0; i < lanes; ++i) panel[i] = source[i];
    for (std::size_t i = lanes; i < width; ++i) panel[i] = 0;
  }
}

LOCKSTEP_CLONES void pack_panels_along(const float* source, std::size_t stride, std::size_t inner, std::size_t panels,
                                       std::size_t width, float* packed) {
  if (width == 32) return pack_whole_along<32>(source, stride, inner, panels, packed);
  if (width == 16) return pack_whole_along<16>(source, stride, inner, panels, packed);
  if (width == 12) return pack_whole_along<12>(source, stride, inner, panels, packed);
  if (width == 8) return pack_whole_along<8>(source, stride, inner, panels, packed);
  if (width == 6) return pack_whole_along<6>(source, stride, inner, panels, packed);
  for (std::size_t q = 0; q < panels; ++q) {
    pack_along(source + q * width, stride, inner, width, width, packed + q * width * inner);
  }
}

/// The same for a transposed source, lane l of step p is source[l * stride + p]: transposes squares of four.
LOCKSTEP_CLONES void pack_across(const float* source, std::size_t stride, std::size_t inner, std::size_t lanes,
                                 std::size_t width, float* panel) {
  std::size_t lane = 0;
  for (; lane + 4 <= lanes; lane += 4) {
    const float* const row = source + lane * stride;
    float* const to = panel + lane;
    std::size_t p = 0;
    for (; p + 4 <= inner; p += 4) {
      if (p % kLine == 0) {  // the next four rows
        for (std::size_t i = 4; i < 8; ++i) __builtin_prefetch(row + i * stride + p);
      }
      const auto at = [&](std::size_t i) {
        Four four;
        std::memcpy(&four, row + i * stride + p, sizeof(Four));
        return four;
      };
      const Four r0 = at(0), r1 = at(1), r2 = at(2), r3 = at(3);
      const Four low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
      const Four high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      const Four low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      const Four high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      const auto put = [&](std::size_t i, Four v) { std::memcpy(to + (p + i) * width, &v, sizeof(Four)); };
      put(0, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
      put(1, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
      put(2, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
      put(3, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
    }
    for (; p < inner; ++p) {
      for (std::size_t i = 0; i < 4; ++i) to[p * width + i] = row[i * stride + p];
    }
  }
  for (; lane < lanes; ++lane) {
    for (std::size_t p = 0; p < inner; ++p) panel[p * width + lane] = source[lane * stride + p];
  }
  for (; lane < width; ++lane) {
    for (std::size_t p = 0; p < inner; ++p) panel[p * width + lane] = 0;
  }
}

/// Packs the columns of b [inner, columns] in panels as wide as a tile; the last one is half as wide if that is enough.
void pack_columns(const Factor& b, std::size_t inner, std::size_t columns, float* packed) {
  const std::size_t whole = kernels().columns;
  std::size_t o = 0;
  if (!b.transposed) {
    pack_panels_along(b.data, b.stride, inner, columns / whole, whole, packed);
    o = columns / whole * whole;
  }
  for (; o < columns; o += whole) {
    const std::size_t lanes = std::min(whole, columns - o), width = lanes <= whole / 2 ? whole / 2 : whole;
    if (b.transposed) {
      pack_across(b.data + o * b.stride, b.stride, inner, lanes, width, packed + o * inner);
    } else {
      pack_along(b.data + o, b.stride, inner, lanes, width, packed + o * inner);
    }
  }
}

/// Packs the rows of a [rows, inner] in panels of `height`, the last one with fewer.
void pack_rows(const Factor& a, std::size_t inner, std::size_t rows, std::size_t height, float* packed) {
  std::size_t i = 0;
  if (a.transposed) {
    pack_panels_along(a.data, a.stride, inner, rows / height, height, packed);
    i = rows / height * height;
  }
  for (; i < rows; i += height) {
    const std::size_t lanes = std::min(height, rows - i);
    if (a.transposed) {
      pack_along(a.data + i, a.stride, inner, lanes, lanes, packed + i * inner);
    } else {
      pack_across(a.data + i * a.stride, a.stride, inner, lanes, lanes, packed + i * inner);
    }
  }
}

/// Workspace of one thread, aligned to cache lines.
struct Workspace {
  struct Free {
    void operator()(float* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  static std::unique_ptr<float[], Free> make(std::size_t elements) {
    return std::unique_ptr<float[], Free>(
        static_cast<float*>(::operator new[](elements * sizeof(float), std::align_val_t{64})));
  }
  std::unique_ptr<float[], Free> a = make(kBlockRows * kMaxInner), b = make(kBlockColumns * kMaxInner);
};

Workspace& workspace() {
  thread_local Workspace own;
  return own;
}

/// Panels of a right factor, each of `inner` steps, for `columns` columns.
struct Panels {
  const float* data = nullptr;
  std::size_t inner = 0, columns = 0;
};

/// Height of a panel: whole groups of four rows for a partial tile, because they pack fastest.
std::size_t panel_height(std::size_t rows) {
  const std::size_t most = kernels().rows, panels = (rows + most - 1) / most;
  return std::min(most, rounded_up((rows + panels - 1) / panels, 4));
}

/// Tells whether tiles read the rows of a where they are. Many tiles beside each other are worth packing them, and so
/// are rows that all fall into one set of the first-level cache.
bool is_read_in_place(const Factor& a, std::size_t columns) {
  constexpr std::size_t kMaxColumnsInPlace = 256, kSetDistance = 1024;
  return !a.transposed && columns <= kMaxColumnsInPlace && a.stride % kSetDistance != 0;
}

/// The contribution of the panels' first steps to a block of c, for all rows. `a` begins at the block's first step.
void add_block(const Factor& a, const ProductShape& block, const Panels& panels, bool accumulate, float* c,
               std::size_t stride, const Finish& finish) {
  const Kernels& kernel = kernels();
  const bool in_place = is_read_in_place(a, block.columns);
  const std::size_t height = panel_height(block.rows), block_rows = kBlockRows / height * height;
  for (std::size_t first = 0; first < block.rows; first += block_rows) {
    const std::size_t rows = std::min(block_rows, block.rows - first);
    const Factor block_of_a = a.from(first, 0);
    if (!in_place) pack_rows(block_of_a, block.inner, rows, height, workspace().a.get());
    const float* const left = in_place ? block_of_a.data : workspace().a.get();
    const std::size_t next_row = in_place ? a.stride : block.inner;
    for (std::size_t o = 0; o < block.columns; o += kernel.columns) {
      const float* const right = panels.data + o * panels.inner;
      const bool is_narrow = panels.columns - o <= kernel.columns / 2;
      const Tiles& tiles = is_narrow ? (in_place ? kernel.narrow_in_place : kernel.narrow)
                                     : (in_place ? kernel.wide_in_place : kernel.wide);
      const std::size_t width = is_narrow ? kernel.columns / 2 : kernel.columns;
      const std::size_t columns = std::min(width, block.columns - o);
      for (std::size_t i = 0; i < rows; i += height) {
        const std::size_t lanes = std::min(height, rows - i);
        float* const to = c + (first + i) * stride + o;
        if (columns == width) {
          tiles[lanes](block.inner, left + i * next_row, a.stride, right, to, stride, accumulate);
          continue;
        }
        // The last columns: computes a tile beside c and copies the columns that c has.
        alignas(64) float edge[kMaxRows * kMaxColumns];
        tiles[lanes](block.inner, left + i * next_row, a.stride, right, edge, width, false);
        for (std::size_t r = 0; r < lanes; ++r) {
          for (std::size_t v = 0; v < columns; ++v) {
            const float sum = edge[r * width + v];
            to[r * stride + v] = accumulate ? to[r * stride + v] + sum : sum;
          }
        }
      }
    }
    finish(c + first * stride, rows, block.columns);
  }
}

}  // namespace

const char* blocked_gemm_instruction_set() noexcept { return kernels().instruction_set; }

void blocked_gemm(const ProductShape& shape, const Factor& a, const Factor& b, Accumulate accumulate, float* c,
                  std::size_t stride, const Finish& finish) {
  const std::size_t step = block_inner(shape.inner);
  float* const right = workspace().b.get();
  for (std::size_t o = 0; o < shape.columns; o += kBlockColumns) {
    const std::size_t columns = std::min(kBlockColumns, shape.columns - o);
    for (std::size_t p = 0; p < shape.inner; p += step) {
      const std::size_t inner = std::min(step, shape.inner - p);
      pack_columns(b.from(p, o), inner, columns, right);
      add_block(a.from(0, p), {shape.rows, columns, inner}, {right, inner, columns},
                accumulate == Accumulate::yes || p > 0, c + o, stride, p + inner == shape.inner ? finish : Finish());
    }
  }
}

std::size_t packed_elements(std::size_t inner, std::size_t columns) noexcept {
  return inner * rounded_up(columns, kPackedGranule);
}

PackedFactor pack_right(const Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace) {
  assert(workspace.size() >= packed_elements(inner, columns));
  const std::size_t step = block_inner(inner), padded = rounded_up(columns, kPackedGranule);
  for (std::size_t p = 0; p < inner; p += step) {
    pack_columns(b.from(p, 0), std::min(step, inner - p), columns, workspace.data() + p * padded);
  }
  return {workspace.data(), inner, columns};
}

void product_with_packed(const ProductShape& shape, const Factor& a, const PackedFactor& b, std::size_t begin,
                         Accumulate accumulate, float* c, std::size_t stride) {
  assert(begin % kPackedGranule == 0 && begin + shape.columns <= b.columns && shape.inner <= b.inner);
  const std::size_t step = block_inner(b.inner), padded = rounded_up(b.columns, kPackedGranule);
  for (std::size_t p = 0; p < shape.inner; p += step) {
    const std::size_t steps = std::min(step, b.inner - p);
    const Panels panels{b.data + p * padded + begin * steps, steps, b.columns - begin};
    add_block(a.from(0, p), {shape.rows, shape.columns, std::min(steps, shape.inner - p)}, panels,
              accumulate == Accumulate::yes || p > 0, c, stride, Finish());
  }
}

}  // namespace lockstep::model::cpu
