#include "model/cpu/bf16/avx512.hpp"

#include "model/cpu/instruction_sets.hpp"

#if LOCKSTEP_HAS_INSTRUCTION_SETS

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "model/cpu/bf16/avx512_transpose.hpp"

// Per function, not per file: inline functions of the standard library must not be compiled for these sets.
#define LOCKSTEP_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define LOCKSTEP_WIDE_INLINE LOCKSTEP_WIDE inline __attribute__((always_inline))

namespace lockstep::model::cpu {

namespace {

LOCKSTEP_WIDE_INLINE __mmask32 mask_of(std::size_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((std::uint32_t{1} << count) - 1);
}

/// Loads 32 consecutive elements of a row, rounded; zero outside the mask.
LOCKSTEP_WIDE_INLINE __m512i load_rounded(const float* from, __mmask32 mask) {
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

LOCKSTEP_WIDE_INLINE __m512i load_rounded(const Bf16* from, __mmask32 mask) {
  return _mm512_maskz_loadu_epi16(mask, from);
}

/// Interleaves two rows of 32 to 32 pairs.
LOCKSTEP_WIDE_INLINE void pair_up(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  alignas(64) static constexpr std::uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kLow), second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  low = _mm512_permutex2var_epi16(even, first, odd);
  high = _mm512_permutex2var_epi16(even, second, odd);
}

/// Loads two consecutive rows of a matrix as pairs; `rows` of the two exist.
template <class Element>
LOCKSTEP_WIDE_INLINE void load_pairs(const Element* from, std::size_t stride, std::size_t rows, __mmask32 lanes,
                                     __m512i& low, __m512i& high) {
  const __m512i even = rows > 0 ? load_rounded(from, lanes) : _mm512_setzero_si512();
  const __m512i odd = rows > 1 ? load_rounded(from + stride, lanes) : _mm512_setzero_si512();
  pair_up(even, odd, low, high);
}

LOCKSTEP_WIDE_INLINE Bf16* row_of(Bf16* step, std::size_t row, std::size_t first) {
  return step + (row < first ? row * kBf16Panel : kBf16Tile + (row - first) * kBf16Panel);
}

/// Layout of a step of a left panel: [rows][16 pairs], or [16 pairs][32 rows].
enum class Panel { rows, pairs };
constexpr std::size_t next_row(Panel panel) { return panel == Panel::rows ? kBf16Panel : 2; }
constexpr std::size_t next_pair(Panel panel) { return panel == Panel::rows ? 2 : 2 * kBf16Panel; }

/// c [kRows, 32] = or += kRows rows of a left panel times a right panel.
template <std::size_t kRows, Panel kPanel>
LOCKSTEP_WIDE void multiply_rows(std::size_t steps, const Bf16* a, const Bf16* b, float* c, std::size_t stride,
                                 bool accumulate) {
  // Prefetches c while the sums are computed.
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kRows; ++i) {
    __builtin_prefetch(c + i * stride, 1);
    __builtin_prefetch(c + i * stride + 16, 1);
  }
  __m512 sums[kRows][2];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kRows; ++i) {
    sums[i][0] = accumulate ? _mm512_loadu_ps(c + i * stride) : _mm512_setzero_ps();
    sums[i][1] = accumulate ? _mm512_loadu_ps(c + i * stride + 16) : _mm512_setzero_ps();
  }
  for (std::size_t step = 0; step < steps; ++step, a += kBf16Step, b += kBf16Step) {
    for (std::size_t pair = 0; pair < 16; ++pair) {
      const __m512bh low = (__m512bh)_mm512_load_si512(b + pair * 32);
      const __m512bh high = (__m512bh)_mm512_load_si512(b + kBf16Tile + pair * 32);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kRows; ++i) {
        int both;
        std::memcpy(&both, a + i * next_row(kPanel) + pair * next_pair(kPanel), sizeof(both));
        const __m512bh left = (__m512bh)_mm512_set1_epi32(both);
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], left, low);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], left, high);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kRows; ++i) {
    _mm512_storeu_ps(c + i * stride, sums[i][0]);
    _mm512_storeu_ps(c + i * stride + 16, sums[i][1]);
  }
}

constexpr std::size_t kMaxRows = 12;  ///< 24 of the 32 registers hold sums
using MultiplyRows = void (*)(std::size_t, const Bf16*, const Bf16*, float*, std::size_t, bool);
template <Panel kPanel, std::size_t... kIndices>
constexpr std::array<MultiplyRows, kMaxRows + 1> by_rows(std::index_sequence<kIndices...>) {
  return {nullptr, &multiply_rows<kIndices + 1, kPanel>...};
}

/// Splits rows into nearly equal parts: 32 rows into 11, 11 and 10.
template <Panel kPanel>
void multiply(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c, std::size_t stride,
              bool accumulate) {
  static constexpr auto kByRows = by_rows<kPanel>(std::make_index_sequence<kMaxRows>());
  for (std::size_t parts = (rows + kMaxRows - 1) / kMaxRows; parts > 0; --parts) {
    const std::size_t now = (rows + parts - 1) / parts;
    kByRows[now](steps, a, b, c, stride, accumulate);
    a += now * next_row(kPanel);
    c += now * stride;
    rows -= now;
  }
}

template <class Element>
LOCKSTEP_WIDE void pack_pairs(const Element* a, std::size_t stride, std::size_t rows, std::size_t inner, Bf16* panel) {
  const __mmask32 lanes = mask_of(rows);
  for (std::size_t k = 0; k < inner; k += kBf16Panel) {
#pragma GCC unroll 4
    for (std::size_t pair = 0; pair < 16; ++pair, panel += 2 * kBf16Panel) {
      const std::size_t at = k + 2 * pair;
      __m512i low, high;
      load_pairs(a + at * stride, stride, inner - std::min(inner, at), lanes, low, high);
      _mm512_store_si512(panel, low);
      _mm512_store_si512(panel + kBf16Panel, high);
    }
  }
}

void pack_left(const Bf16Factor& a, std::size_t rows, std::size_t inner, Bf16* panel) {
  if (!a.transposed) return avx512_pack_left(a, rows, 16, inner, panel);
  a.with_elements([&](const auto* elements) { pack_pairs(elements, a.stride, rows, inner, panel); });
}

// With blocks of 768, eleven rows (17 KiB) stay in the first-level cache while the right panel is streamed.
constexpr Bf16Kernels kKernels{.pack_left = pack_left,
                               .pack_right = avx512_pack_right,
                               .multiply = multiply<Panel::rows>,
                               .multiply_turned = multiply<Panel::pairs>,
                               .round = avx512_round,
                               .max_inner = 768};

template <class Element>
LOCKSTEP_WIDE void pack_rows(const Element* a, std::size_t stride, std::size_t rows, std::size_t first,
                             std::size_t inner, Bf16* panel) {
  for (std::size_t i = 0; i < rows; ++i) {
    Bf16* to = row_of(panel, i, first);
    for (std::size_t k = 0; k < inner; k += kBf16Panel, to += kBf16Step) {
      _mm512_storeu_si512(to, load_rounded(a + i * stride + k, mask_of(inner - k)));
    }
  }
}

template <class Element>
LOCKSTEP_WIDE void pack_turned_rows(const Element* a, std::size_t stride, std::size_t rows, std::size_t first,
                                    std::size_t inner, Bf16* panel) {
  const __mmask32 lanes = mask_of(rows);
  for (std::size_t k = 0; k < inner; k += kBf16Panel, panel += kBf16Step) {
    __m512i low[16], high[16];
#pragma GCC unroll 16
    for (std::size_t pair = 0; pair < 16; ++pair) {
      const std::size_t at = k + 2 * pair;
      load_pairs(a + at * stride, stride, inner - std::min(inner, at), lanes, low[pair], high[pair]);
    }
    transpose(low);
    transpose(high);
    for (std::size_t i = 0; i < rows; ++i) {
      _mm512_storeu_si512(row_of(panel, i, first), i < 16 ? low[i] : high[i - 16]);
    }
  }
}

template <class Element>
LOCKSTEP_WIDE void pack_columns(const Element* b, std::size_t stride, std::size_t inner, std::size_t columns,
                                Bf16* panel) {
  const __mmask32 lanes = mask_of(columns);
  for (std::size_t k = 0; k < inner; k += kBf16Panel, panel += kBf16Step) {
#pragma GCC unroll 4
    for (std::size_t pair = 0; pair < 16; ++pair) {
      const std::size_t at = k + 2 * pair;
      __m512i low, high;
      load_pairs(b + at * stride, stride, inner - std::min(inner, at), lanes, low, high);
      _mm512_store_si512(panel + pair * 32, low);
      _mm512_store_si512(panel + kBf16Tile + pair * 32, high);
    }
  }
}

template <class Element>
LOCKSTEP_WIDE void pack_turned_columns(const Element* b, std::size_t stride, std::size_t inner, std::size_t columns,
                                       Bf16* panel) {
  for (std::size_t k = 0; k < inner; k += kBf16Panel, panel += kBf16Step) {
    const __mmask32 lanes = mask_of(inner - k);
    for (std::size_t tile = 0; tile < 2; ++tile) {
      __m512i r[16];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i) {
        const std::size_t column = tile * 16 + i;
        r[i] = column < columns ? load_rounded(b + column * stride + k, lanes) : _mm512_setzero_si512();
      }
      transpose(r);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i) _mm512_store_si512(panel + tile * kBf16Tile + i * 32, r[i]);
    }
  }
}

}  // namespace

void avx512_pack_left(const Bf16Factor& a, std::size_t rows, std::size_t first, std::size_t inner, Bf16* panel) {
  a.with_elements([&](const auto* elements) {
    if (a.transposed) return pack_turned_rows(elements, a.stride, rows, first, inner, panel);
    pack_rows(elements, a.stride, rows, first, inner, panel);
  });
}

void avx512_pack_right(const Bf16Factor& b, std::size_t inner, std::size_t columns, Bf16* panel) {
  b.with_elements([&](const auto* elements) {
    if (b.transposed) return pack_turned_columns(elements, b.stride, inner, columns, panel);
    pack_columns(elements, b.stride, inner, columns, panel);
  });
}

LOCKSTEP_WIDE void avx512_round(const Bf16Rounding& rounding) {
  const __mmask32 lanes = mask_of(rounding.columns);
  const auto low_lanes = static_cast<__mmask16>(lanes), high_lanes = static_cast<__mmask16>(lanes >> 16);
  const bool adds = rounding.bias != nullptr;
  const __m512 low_bias = adds ? _mm512_maskz_loadu_ps(low_lanes, rounding.bias) : _mm512_set1_ps(-0.0f);
  const __m512 high_bias = adds ? _mm512_maskz_loadu_ps(high_lanes, rounding.bias + 16) : _mm512_set1_ps(-0.0f);
  const __m512 least = _mm512_set1_ps(rounding.is_relu ? 0 : -std::numeric_limits<float>::infinity());
  const float* sums = rounding.sums;
  Bf16* to = rounding.to;
  for (std::size_t i = 0; i < rounding.rows; ++i, sums += kBf16Panel, to += rounding.stride) {
    // A NaN in the second operand of the maximum stays a NaN.
    const __m512 low = _mm512_max_ps(least, _mm512_add_ps(_mm512_loadu_ps(sums), low_bias));
    const __m512 high = _mm512_max_ps(least, _mm512_add_ps(_mm512_loadu_ps(sums + 16), high_bias));
    _mm512_mask_storeu_epi16(to, lanes, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

const Bf16Kernels* avx512_kernels() noexcept { return &kKernels; }

bool processor_has_avx512_bf16() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("fma");
}

}  // namespace lockstep::model::cpu

#else

namespace lockstep::model::cpu {
const Bf16Kernels* avx512_kernels() noexcept { return nullptr; }
bool processor_has_avx512_bf16() noexcept { return false; }
}  // namespace lockstep::model::cpu

#endif
