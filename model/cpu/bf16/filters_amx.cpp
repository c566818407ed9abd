#include "model/cpu/bf16/filters.hpp"
#include "model/cpu/instruction_sets.hpp"

#if LOCKSTEP_HAS_INSTRUCTION_SETS

#include <algorithm>

#include "model/cpu/bf16/avx512_transpose.hpp"

// Per function, not per file: inline functions of the standard library must not be compiled for these sets.
#define LOCKSTEP_TILES __attribute__((target("amx-tile,amx-bf16")))
// Every processor with AMX has these sets.
#define LOCKSTEP_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2")))

namespace lockstep::model::cpu {

namespace {

LOCKSTEP_WIDE inline __attribute__((always_inline)) __m256i load_pixel(const Bf16* pixel, __mmask16 channels) {
  return _mm256_maskz_loadu_epi16(channels, pixel);
}

/// Interleaves the channels of two pixels.
LOCKSTEP_WIDE inline __attribute__((always_inline)) __m512i pair_up(__m256i even, __m256i odd) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1));
}

LOCKSTEP_WIDE inline __attribute__((always_inline)) __mmask16 mask_of(std::size_t channels) {
  return static_cast<__mmask16>((1u << channels) - 1);
}

__mmask32 lanes(std::size_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((std::uint32_t{1} << count) - 1);
}

/// Advances a pointer. The asm keeps the compiler from computing all addresses in advance and storing them in memory.
template <class Pointer>
LOCKSTEP_WIDE inline __attribute__((always_inline)) void advance(Pointer& pointer, std::size_t elements) {
  pointer += elements;
  asm("" : "+r"(pointer));
}

/// Returns a mask of the cells, among the next `count`, that are pixels. column: column of the first cell; advanced
/// past them.
__mmask32 pixels_among(const FilterRows& rows, std::size_t count, std::size_t& column) {
  std::uint32_t mask = 0;
  for (std::size_t lane = 0; lane < count;) {
    const std::size_t behind = rows.first + rows.pixels;
    const bool is_pixel = column >= rows.first && column < behind;
    const std::size_t end = column < rows.first ? rows.first : is_pixel ? behind : rows.cells;
    const std::size_t now = std::min(end - column, count - lane);
    if (is_pixel) mask |= lanes(now) << lane;
    lane += now;
    column += now;
    if (column == rows.cells) column = 0;
  }
  return mask;
}

// Writes 32 cells at a time: consecutive pixels, with gaps for padding.
LOCKSTEP_WIDE void turn(const Bf16* image, std::size_t stride, std::size_t channels, const FilterRows& rows, Bf16* to,
                        std::size_t pitch) {
  const __mmask16 mask = mask_of(channels);
  std::size_t pixels = rows.count * rows.pixels, column = 0;
  for (std::size_t cells = rows.count * rows.cells; cells > 0;) {
    const std::size_t place = reinterpret_cast<std::uintptr_t>(to) / sizeof(Bf16) % 32;
    const std::size_t now = std::min(cells, 32 - place);
    const __mmask32 filled = pixels_among(rows, now, column);
    const Bf16* pixel = image;
    __m512i r[16];
    if (pixels >= 32) {  // some of the 32 may not be needed
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i, advance(pixel, 2 * stride)) {
        r[i] = pair_up(load_pixel(pixel, mask), load_pixel(pixel + stride, mask));
      }
    } else {
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i, advance(pixel, 2 * stride)) {
        const __m256i even = 2 * i < pixels ? load_pixel(pixel, mask) : _mm256_setzero_si256(),
                      odd = 2 * i + 1 < pixels ? load_pixel(pixel + stride, mask) : _mm256_setzero_si256();
        r[i] = pair_up(even, odd);
      }
    }
    transpose(r);
    Bf16* channel = to;
    if (now == 32) {
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i, advance(channel, pitch)) {
        _mm512_storeu_si512(channel, _mm512_maskz_expand_epi16(filled, r[i]));
      }
    } else {
#pragma GCC unroll 16
      for (std::size_t i = 0; i < 16; ++i, advance(channel, pitch)) {
        _mm512_mask_storeu_epi16(channel, lanes(now), _mm512_maskz_expand_epi16(filled, r[i]));
      }
    }
    const auto read = static_cast<std::size_t>(__builtin_popcount(filled));
    image += read * stride;
    pixels -= read;
    to += now;
    cells -= now;
  }
}

LOCKSTEP_WIDE void pair(const Bf16* image, std::size_t stride, std::size_t channels, std::size_t pixels, Bf16* to) {
  const __mmask16 mask = mask_of(channels);
  std::size_t i = 0;
  for (; i + 1 < pixels; i += 2, to += 32) {
    _mm512_storeu_si512(to, pair_up(load_pixel(image + i * stride, mask), load_pixel(image + (i + 1) * stride, mask)));
  }
  if (i < pixels) _mm512_storeu_si512(to, pair_up(load_pixel(image + i * stride, mask), _mm256_setzero_si256()));
}

/// All tiles are whole: 16 rows of 64 bytes.
LOCKSTEP_TILES void configure() {
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
  } configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.bytes[tile] = 64;
    configuration.rows[tile] = 16;
  }
  // The intrinsic of GCC 12 declares only the first eight bytes as read. Without this the compiler may not write the
  // others.
  asm volatile("" : : "r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
}

LOCKSTEP_TILES void release() { _tile_release(); }

constexpr std::size_t kSums = kFilterTile * kFilterTile, kRightStep = kFilterStep * kFilterTile;

/// Tiles 0 to 3 hold the sums, 4 and 5 the left factor, 6 and 7 the right factor.
template <bool kTwo>
LOCKSTEP_TILES inline __attribute__((always_inline)) void multiply_by_two(const FilterProducts& all) {
  const std::size_t pitch = all.pitch * sizeof(Bf16);
  _tile_loadd(0, all.sums[0], 64);
  _tile_loadd(1, all.sums[0] + kSums, 64);
  if constexpr (kTwo) {
    _tile_loadd(2, all.sums[1], 64);
    _tile_loadd(3, all.sums[1] + kSums, 64);
  }
  const Bf16 *first = all.left[0], *second = all.left[1], *right = all.right, *other = all.right + all.next_right;
  for (std::size_t step = 0; step < all.steps; ++step) {
    _tile_loadd(4, first, pitch);
    _tile_loadd(6, right, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, other, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, second, pitch);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      second += kFilterStep;
    }
    first += kFilterStep;
    right += kRightStep;
    other += kRightStep;
  }
  _tile_stored(0, all.sums[0], 64);
  _tile_stored(1, all.sums[0] + kSums, 64);
  if constexpr (kTwo) {
    _tile_stored(2, all.sums[1], 64);
    _tile_stored(3, all.sums[1] + kSums, 64);
  }
}

/// Tiles 0 to 4 hold the sums, 5 and 6 the left factor, 7 the right factor.
template <std::size_t kLefts>
LOCKSTEP_TILES inline __attribute__((always_inline)) void multiply_by_one(const FilterProducts& all) {
  const std::size_t pitch = all.pitch * sizeof(Bf16);
  _tile_loadd(0, all.sums[0], 64);
  if constexpr (kLefts > 1) _tile_loadd(1, all.sums[1], 64);
  if constexpr (kLefts > 2) _tile_loadd(2, all.sums[2], 64);
  if constexpr (kLefts > 3) _tile_loadd(3, all.sums[3], 64);
  if constexpr (kLefts > 4) _tile_loadd(4, all.sums[4], 64);
  for (std::size_t step = 0, at = 0; step < all.steps; ++step, at += kFilterStep) {
    _tile_loadd(7, all.right + step * kRightStep, 64);
    _tile_loadd(5, all.left[0] + at, pitch);
    _tile_dpbf16ps(0, 5, 7);
    if constexpr (kLefts > 1) {
      _tile_loadd(6, all.left[1] + at, pitch);
      _tile_dpbf16ps(1, 6, 7);
    }
    if constexpr (kLefts > 2) {
      _tile_loadd(5, all.left[2] + at, pitch);
      _tile_dpbf16ps(2, 5, 7);
    }
    if constexpr (kLefts > 3) {
      _tile_loadd(6, all.left[3] + at, pitch);
      _tile_dpbf16ps(3, 6, 7);
    }
    if constexpr (kLefts > 4) {
      _tile_loadd(5, all.left[4] + at, pitch);
      _tile_dpbf16ps(4, 5, 7);
    }
  }
  _tile_stored(0, all.sums[0], 64);
  if constexpr (kLefts > 1) _tile_stored(1, all.sums[1], 64);
  if constexpr (kLefts > 2) _tile_stored(2, all.sums[2], 64);
  if constexpr (kLefts > 3) _tile_stored(3, all.sums[3], 64);
  if constexpr (kLefts > 4) _tile_stored(4, all.sums[4], 64);
}

LOCKSTEP_TILES void multiply(const FilterProducts& products) {
  asm volatile("" : : : "memory");  // _tile_loadd does not declare that it reads memory
  if (products.rights == 2) {
    if (products.lefts == 2) {
      multiply_by_two<true>(products);
    } else {
      multiply_by_two<false>(products);
    }
  } else {
    switch (products.lefts) {
      case 1:
        multiply_by_one<1>(products);
        break;
      case 2:
        multiply_by_one<2>(products);
        break;
      case 3:
        multiply_by_one<3>(products);
        break;
      case 4:
        multiply_by_one<4>(products);
        break;
      default:
        multiply_by_one<5>(products);
    }
  }
  asm volatile("" : : : "memory");
}

constexpr FilterKernels kKernels{.turn = turn, .pair = pair, .multiply = multiply, .begin = configure, .end = release};

}  // namespace

const FilterKernels* amx_filter_kernels() noexcept { return &kKernels; }

}  // namespace lockstep::model::cpu

#else

namespace lockstep::model::cpu {
const FilterKernels* amx_filter_kernels() noexcept { return nullptr; }
}  // namespace lockstep::model::cpu

#endif
