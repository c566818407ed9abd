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

/// Selects if a tile reads a in place, with rows `a_stride` elements apart, or in a panel [inner][rows].
enum class InPlace : bool { no, yes };
/// Selects if a tile reads rows of the factor b and packs them into a panel for the tiles below it, or reads a packed
/// panel. Packing in a tile costs no time: the multiplications limit it.
enum class Packs : bool { no, yes };
constexpr std::size_t kStepsAhead = 12;  ///< inner steps between packing and prefetching

/// Operands of a tile of c; the number of its rows is a template argument.
struct TileOperands {
  std::size_t inner = 0;
  const float* a = nullptr;
  std::size_t a_stride = 0;
  const float* b = nullptr;  ///< panel [inner][columns of the tile], or the rows of b to pack
  std::size_t b_stride = 0;
  float* packed = nullptr;      ///< panel that the tile packs
  const float* next = nullptr;  ///< rows of b that later tiles read, as wide as a tile; prefetched
  std::size_t next_stride = 0;
  std::size_t fetches = 1;  ///< rows of `next` every kStepsPerFetch steps
  float* c = nullptr;
  std::size_t c_stride = 0;
  bool accumulate = false;
};
using Tile = void (*)(const TileOperands& operands);

/// Up to this many tiles of a panel prefetch the next panel.
constexpr std::size_t kStepsPerFetch = 8;

// Loaded and stored by memcpy, because rows of c may be unaligned.
using Sixteen = float __attribute__((vector_size(64)));
using Eight = float __attribute__((vector_size(32)));
using Four = float __attribute__((vector_size(16)));

// A macro, because the compiler lowers vector code in the function that defines it, before inlining: a common inline
// function would be compiled for the baseline instruction set.
#define LOCKSTEP_TILE(name, Vector, attribute)                                                                    \
  template <std::size_t kRows, std::size_t kVectors, InPlace kInPlace, Packs kPacks>                              \
  attribute void name(const TileOperands& o) {                                                                    \
    constexpr std::size_t kWidth = sizeof(Vector) / sizeof(float);                                                \
    const std::size_t inner = o.inner, a_stride = o.a_stride, stride = o.c_stride;                                \
    const bool accumulate = o.accumulate;                                                                         \
    const float* __restrict a = o.a;                                                                              \
    const float* __restrict b = o.b;                                                                              \
    const float* next = o.next;                                                                                   \
    float* __restrict packed = o.packed;                                                                          \
    float* __restrict c = o.c;                                                                                    \
    /* A few pointers reach all rows in place, so that the registers suffice. */                                  \
    constexpr std::size_t kGroup = 3, kGroups = (kRows + kGroup - 1) / kGroup;                                    \
    const float* rows[kGroups];                                                                                   \
    for (std::size_t g = 0; g < kGroups; ++g) rows[g] = kInPlace == InPlace::yes ? a + g * kGroup * a_stride : a; \
    /* Prefetches the tile of c while the sums are made. */                                                       \
    _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                            \
      for (std::size_t v = 0; v < kVectors; ++v) __builtin_prefetch(c + i * stride + v * kWidth, 1);              \
    }                                                                                                             \
    Vector sums[kRows][kVectors] = {};                                                                            \
    for (std::size_t p = 0; p < inner; ++p) {                                                                     \
      Vector right[kVectors];                                                                                     \
      _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) {                                        \
        std::memcpy(&right[v], b + v * kWidth, sizeof(Vector));                                                   \
      }                                                                                                           \
      _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                          \
        const float left = kInPlace == InPlace::yes ? rows[i / kGroup][i % kGroup * a_stride] : a[i];             \
        _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) sums[i][v] += left * right[v];         \
      }                                                                                                           \
      if constexpr (kInPlace == InPlace::yes) {                                                                   \
        for (std::size_t g = 0; g < kGroups; ++g) ++rows[g];                                                      \
      } else {                                                                                                    \
        a += kRows;                                                                                               \
      }                                                                                                           \
      if constexpr (kPacks == Packs::yes) {                                                                       \
        _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) {                                      \
          std::memcpy(packed + v * kWidth, &right[v], sizeof(Vector));                                            \
          __builtin_prefetch(b + kStepsAhead * o.b_stride + v * kWidth);                                          \
        }                                                                                                         \
        packed += kVectors * kWidth;                                                                              \
        b += o.b_stride;                                                                                          \
      } else {                                                                                                    \
        b += kVectors * kWidth;                                                                                   \
        if (p % kStepsPerFetch == 0) {                                                                            \
          for (std::size_t f = 0; f < o.fetches; ++f, next += o.next_stride) {                                    \
            for (std::size_t v = 0; v < kVectors; ++v) __builtin_prefetch(next + v * kWidth, 0, 2);               \
          }                                                                                                       \
        }                                                                                                         \
      }                                                                                                           \
    }                                                                                                             \
    _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kRows; ++i) {                                            \
      _Pragma("GCC unroll 4") for (std::size_t v = 0; v < kVectors; ++v) {                                        \
        float* const to = c + i * stride + v * kWidth;                                                            \
        Vector before = {};                                                                                       \
        if (accumulate) std::memcpy(&before, to, sizeof(Vector));                                                 \
        const Vector sum = accumulate ? before + sums[i][v] : sums[i][v];                                         \
        std::memcpy(to, &sum, sizeof(Vector));                                                                    \
      }                                                                                                           \
    }                                                                                                             \
  }

LOCKSTEP_TILE(tile_of_sixteens, Sixteen, LOCKSTEP_TARGET("x86-64-v4"))
LOCKSTEP_TILE(tile_of_eights, Eight, LOCKSTEP_TARGET("x86-64-v3"))
#undef LOCKSTEP_TILE

/// Tiles by number of rows.
using Tiles = std::array<Tile, kMaxRows + 1>;

struct Kernels {
  const char* instruction_set = nullptr;
  std::size_t rows = 0, columns = 0;    ///< extents of a whole tile
  std::size_t inner = 0;                ///< maximum inner dimension of a block
  Tiles wide{}, wide_in_place{};        ///< two vectors wide
  Tiles narrow{}, narrow_in_place{};    ///< one vector wide, for the last columns
  Tiles packing{}, packing_in_place{};  ///< two vectors wide; they pack the panel
};

template <std::size_t... kRows>
Kernels sixteens(std::index_sequence<kRows...>) {
  return {"x86-64-v4",
          12,
          32,
          kMaxInner,
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::no, Packs::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::yes, Packs::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 1, InPlace::no, Packs::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 1, InPlace::yes, Packs::no>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::no, Packs::yes>...},
          {nullptr, &tile_of_sixteens<kRows + 1, 2, InPlace::yes, Packs::yes>...}};
}
template <std::size_t... kRows>
Kernels eights(std::index_sequence<kRows...>) {
  return {"x86-64-v3",
          6,
          16,
          kMaxInner / 2,
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::no, Packs::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::yes, Packs::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 1, InPlace::no, Packs::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 1, InPlace::yes, Packs::no>...},
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::no, Packs::yes>...},
          {nullptr, &tile_of_eights<kRows + 1, 2, InPlace::yes, Packs::yes>...}};
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

/// Returns the inner dimension of a block. Blocks are nearly equal and depend on `inner` alone.
std::size_t block_inner(std::size_t inner) {
  const std::size_t blocks = (inner + kernels().inner - 1) / kernels().inner;
  return (inner + blocks - 1) / blocks;
}

std::size_t rounded_up(std::size_t count, std::size_t granule) { return (count + granule - 1) / granule * granule; }

/// Packs panels [inner][kWidth], one after another, from consecutive rows: lane l of step p of panel q is source[p *
/// stride + q * kWidth + l]. Packs a few panels at once, step by step, because rows are often pages apart.
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

/// Packs one panel [inner][width] with `lanes` lanes; further lanes become zero.
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

/// Like pack_along() for a transposed source: lane l of step p is source[l * stride + p]. Transposes squares of four.
/// Lanes [lanes, filled) become zero.
LOCKSTEP_CLONES void pack_across(const float* source, std::size_t stride, std::size_t inner, std::size_t lanes,
                                 std::size_t filled, std::size_t width, float* panel) {
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
  for (; lane < filled; ++lane) {
    for (std::size_t p = 0; p < inner; ++p) panel[p * width + lane] = 0;
  }
}

/// Like pack_across() for sixteen lanes.
LOCKSTEP_TARGET("x86-64-v4")
void pack_sixteen_across(const float* source, std::size_t stride, std::size_t inner, std::size_t width, float* panel) {
  std::size_t p = 0;
  for (; p + 4 <= inner; p += 4) {
    // rows[i] has row i of each square of four: four steps of lanes i, 4 + i, 8 + i and 12 + i.
    Sixteen rows[4];
    for (std::size_t i = 0; i < 4; ++i) {
      Four squares[4];
      for (std::size_t q = 0; q < 4; ++q) std::memcpy(&squares[q], source + (4 * q + i) * stride + p, sizeof(Four));
      const Eight low = __builtin_shufflevector(squares[0], squares[1], 0, 1, 2, 3, 4, 5, 6, 7);
      const Eight high = __builtin_shufflevector(squares[2], squares[3], 0, 1, 2, 3, 4, 5, 6, 7);
      rows[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
#define LOCKSTEP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define LOCKSTEP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOCKSTEP_FIRST(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define LOCKSTEP_SECOND(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
    const Sixteen low01 = LOCKSTEP_LOW(rows[0], rows[1]), high01 = LOCKSTEP_HIGH(rows[0], rows[1]);
    const Sixteen low23 = LOCKSTEP_LOW(rows[2], rows[3]), high23 = LOCKSTEP_HIGH(rows[2], rows[3]);
    const Sixteen steps[4] = {LOCKSTEP_FIRST(low01, low23), LOCKSTEP_SECOND(low01, low23),
                              LOCKSTEP_FIRST(high01, high23), LOCKSTEP_SECOND(high01, high23)};
#undef LOCKSTEP_LOW
#undef LOCKSTEP_HIGH
#undef LOCKSTEP_FIRST
#undef LOCKSTEP_SECOND
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(panel + (p + i) * width, &steps[i], sizeof(Sixteen));
  }
  for (; p < inner; ++p) {
    for (std::size_t l = 0; l < 16; ++l) panel[p * width + l] = source[l * stride + p];
  }
}

/// Packs a panel from a transposed factor, lane l of step p is source[l * stride + p].
void pack_panel_across(const float* source, std::size_t stride, std::size_t inner, std::size_t lanes, std::size_t width,
                       float* panel) {
  std::size_t lane = 0;
  if (kernels().columns == 32) {
    for (; lane + 16 <= lanes; lane += 16)
      pack_sixteen_across(source + lane * stride, stride, inner, width, panel + lane);
  }
  if (lane < width) pack_across(source + lane * stride, stride, inner, lanes - lane, width - lane, width, panel + lane);
}

/// Packs the columns of b [inner, columns] in panels as wide as a tile. The last panel is half as wide if that
/// suffices.
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
      pack_panel_across(b.data + o * b.stride, b.stride, inner, lanes, width, packed + o * inner);
    } else {
      pack_along(b.data + o, b.stride, inner, lanes, width, packed + o * inner);
    }
  }
}

/// Packs the rows of a [rows, inner] in panels of `height` rows; the last one may have fewer.
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
      pack_across(a.data + i * a.stride, a.stride, inner, lanes, lanes, lanes, packed + i * inner);
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

/// Panels of a right factor [inner, columns].
struct Panels {
  const float* data = nullptr;
  std::size_t inner = 0, columns = 0;
  float* memory = nullptr;                   ///< equals `data` if panels must be packed before first use
  Factor source = {};                        ///< the factor to pack
  PanelOrder order = PanelOrder::ascending;  ///< ascending if panels must be packed
};

/// Returns the height of a panel: for a partial tile whole groups of four rows, because these pack fastest.
std::size_t panel_height(std::size_t rows) {
  const std::size_t most = kernels().rows, panels = (rows + most - 1) / most;
  return std::min(most, rounded_up((rows + panels - 1) / panels, 4));
}

/// True if tiles read the rows of a in place. Packing pays if many tiles read the same rows, or if all rows fall into
/// one set of the first-level cache.
bool is_read_in_place(const Factor& a, std::size_t columns) {
  constexpr std::size_t kMaxColumnsInPlace = 256, kSetDistance = 1024;
  return !a.transposed && columns <= kMaxColumnsInPlace && a.stride % kSetDistance != 0;
}

/// A block of rows of a: panels of `height` rows, or rows in place, `next_row` elements apart.
struct Left {
  const float* data = nullptr;
  std::size_t rows = 0, height = 0, next_row = 0;
  InPlace in_place = InPlace::no;
};

/// Computes the part of c [left.rows, columns] for one panel of b. operands: what the tiles share. If `source` is
/// present, the first tile packs the panel from it.
void add_panel(const Left& left, TileOperands operands, const Factor& source, float* memory, std::size_t width,
               std::size_t columns, float* c, std::size_t stride) {
  const Kernels& kernel = kernels();
  const bool in_place = left.in_place == InPlace::yes, accumulate = operands.accumulate;
  const Tiles& wide = in_place ? kernel.wide_in_place : kernel.wide;
  const Tiles& tiles = width == kernel.columns ? wide : in_place ? kernel.narrow_in_place : kernel.narrow;
  const std::size_t tiles_of_panel = (left.rows + left.height - 1) / left.height;
  operands.fetches = tiles_of_panel < kStepsPerFetch ? (kStepsPerFetch + tiles_of_panel - 1) / tiles_of_panel : 1;
  const std::size_t rows_per_tile = (operands.inner + kStepsPerFetch - 1) / kStepsPerFetch * operands.fetches;
  const float* const next = operands.next;
  for (std::size_t i = 0, fetched = 0; i < left.rows; i += left.height) {
    const std::size_t lanes = std::min(left.height, left.rows - i);
    operands.a = left.data + i * left.next_row;
    operands.c = c + i * stride;
    operands.c_stride = stride;
    if (source.data != nullptr && i == 0) {
      TileOperands packing = operands;
      packing.b = source.data;
      packing.b_stride = source.stride;
      packing.packed = memory;
      (in_place ? kernel.packing_in_place : kernel.packing)[lanes](packing);
      continue;
    }
    operands.next = next + fetched * operands.next_stride;
    fetched = fetched + rows_per_tile < operands.inner ? fetched + rows_per_tile : 0;
    if (columns == width) {
      tiles[lanes](operands);
      continue;
    }
    // For the last columns: computes a whole tile in `edge` and copies the columns that c has.
    alignas(64) float edge[kMaxRows * kMaxColumns];
    float* const to = operands.c;
    operands.c = edge;
    operands.c_stride = width;
    operands.accumulate = false;
    tiles[lanes](operands);
    for (std::size_t r = 0; r < lanes; ++r) {
      for (std::size_t v = 0; v < columns; ++v) {
        const float sum = edge[r * width + v];
        to[r * stride + v] = accumulate ? to[r * stride + v] + sum : sum;
      }
    }
  }
}

/// Adds the contribution of one block of the inner dimension to a block of c, for all rows. `a` begins at the block.
void add_block(const Factor& a, const ProductShape& block, const Panels& panels, bool accumulate, float* c,
               std::size_t stride, const Finish& finish) {
  const std::size_t whole = kernels().columns, count = (block.columns + whole - 1) / whole;
  const bool in_place = is_read_in_place(a, block.columns);
  const std::size_t height = panel_height(block.rows), block_rows = kBlockRows / height * height;
  for (std::size_t first = 0; first < block.rows; first += block_rows) {
    const std::size_t rows = std::min(block_rows, block.rows - first);
    Left left{
        .data = a.from(first, 0).data, .rows = rows, .height = height, .next_row = a.stride, .in_place = InPlace::yes};
    if (!in_place) {
      pack_rows(a.from(first, 0), block.inner, rows, height, workspace().a.get());
      left = {.data = workspace().a.get(), .rows = rows, .height = height, .next_row = block.inner};
    }
    const bool packs = first == 0 && panels.memory != nullptr, is_row_major = !panels.source.transposed;
    for (std::size_t q = 0; q < count; ++q) {
      const bool ascends = panels.order == PanelOrder::ascending;
      const std::size_t o = (ascends ? q : count - 1 - q) * whole;
      // Panels that are used only once are packed into the same memory, which stays in the caches.
      const std::size_t offset = packs && block.rows <= block_rows ? 0 : o * panels.inner;
      const std::size_t width = panels.columns - o <= whole / 2 ? whole / 2 : whole;
      const std::size_t columns = std::min(width, block.columns - o);
      const Factor source = packs ? panels.source.from(0, o) : Factor{};
      const bool tile_packs = packs && is_row_major && columns == whole;
      if (packs && !tile_packs) pack_columns(source, block.inner, columns, panels.memory + offset);
      TileOperands operands{.inner = block.inner,
                            .a_stride = a.stride,
                            .b = panels.data + offset,
                            .next = panels.data,
                            .accumulate = accumulate};
      if (q + 1 < count && (!packs || is_row_major)) {
        operands.next = packs ? source.data + whole : panels.data + (ascends ? o + whole : o - whole) * panels.inner;
        operands.next_stride = packs ? source.stride : whole;
      }
      add_panel(left, operands, tile_packs ? source : Factor{}, tile_packs ? panels.memory + offset : nullptr, width,
                columns, c + first * stride + o, stride);
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
      add_block(a.from(0, p), {shape.rows, columns, inner}, {right, inner, columns, right, b.from(p, o)},
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
                         Accumulate accumulate, float* c, std::size_t stride, PanelOrder order) {
  assert(begin % kPackedGranule == 0 && begin + shape.columns <= b.columns && shape.inner <= b.inner);
  const std::size_t step = block_inner(b.inner), padded = rounded_up(b.columns, kPackedGranule);
  for (std::size_t p = 0; p < shape.inner; p += step) {
    const std::size_t steps = std::min(step, b.inner - p);
    const Panels panels{
        .data = b.data + p * padded + begin * steps, .inner = steps, .columns = b.columns - begin, .order = order};
    add_block(a.from(0, p), {shape.rows, shape.columns, std::min(steps, shape.inner - p)}, panels,
              accumulate == Accumulate::yes || p > 0, c, stride, Finish());
  }
}

}  // namespace lockstep::model::cpu
