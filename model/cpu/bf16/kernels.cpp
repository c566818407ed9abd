#include "model/cpu/bf16/kernels.hpp"

#include <algorithm>

#include "model/cpu/bf16/emulation.hpp"

namespace lockstep::model::cpu {

namespace {

/// Offset of row `row` in a left panel whose first tile has `first` rows, in elements.
constexpr std::size_t row_offset(std::size_t row, std::size_t first) {
  return row < first ? row * kBf16Panel : kBf16Tile + (row - first) * kBf16Panel;
}

Bf16 element(const Bf16Factor& factor, std::size_t row, std::size_t column) {
  const Bf16Factor at = factor.from(row, column);
  return at.halves != nullptr ? *at.halves : to_bf16(*at.floats);
}

template <bool kTiles>
void emulated_pack_left(const Bf16Factor& a, std::size_t rows, std::size_t inner, Bf16* panel) {
  const std::size_t first = kTiles ? rows_of_first_tile(rows) : 16;
  std::fill_n(panel, bf16_panels(inner) * kBf16Step, Bf16{0});
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      panel[k / kBf16Panel * kBf16Step + row_offset(i, first) + k % kBf16Panel] = element(a, i, k);
    }
  }
}

void emulated_pack_right(const Bf16Factor& b, std::size_t inner, std::size_t columns, Bf16* panel) {
  std::fill_n(panel, bf16_panels(inner) * kBf16Step, Bf16{0});
  for (std::size_t k = 0; k < inner; ++k) {
    for (std::size_t n = 0; n < columns; ++n) {
      panel[k / 32 * kBf16Step + n / 16 * kBf16Tile + k % 32 / 2 * 32 + n % 16 * 2 + k % 2] = element(b, k, n);
    }
  }
}

/// Sums of one row of 32 columns.
using Sums = EmulatedSums<kBf16Panel>;

LOCKSTEP_CLONES void emulated_avx512(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c,
                                     std::size_t stride, bool accumulate) {
  for (std::size_t i = 0; i < rows; ++i) {
    Sums sums{};
    for (std::size_t n = 0; accumulate && n < kBf16Panel; ++n) sums[n] = flushed(c[i * stride + n]);
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t pair = 0; pair < kBf16Panel; pair += 2) {
        add_products(a + step * kBf16Step + i * kBf16Panel, b + step * kBf16Step, pair + 1, sums);
        add_products(a + step * kBf16Step + i * kBf16Panel, b + step * kBf16Step, pair, sums);
      }
    }
    std::ranges::copy(sums, c + i * stride);
  }
}

LOCKSTEP_CLONES void emulated_amx(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c,
                                  std::size_t stride, bool accumulate) {
  const std::size_t first = rows_of_first_tile(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    Sums sums{};
    for (std::size_t n = 0; accumulate && n < kBf16Panel; ++n) sums[n] = c[i * stride + n];
    for (std::size_t step = 0; step < steps; ++step) {
      add_amx_step(a + step * kBf16Step + row_offset(i, first), b + step * kBf16Step, sums);
    }
    std::ranges::copy(sums, c + i * stride);
  }
}

void emulated_round(const Bf16Rounding& rounding) {
  const auto& [rows, columns, sums, bias, is_relu, to, stride] = rounding;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t o = 0; o < columns; ++o) {
      const float sum = bias == nullptr ? sums[i * kBf16Panel + o] : sums[i * kBf16Panel + o] + bias[o];
      to[i * stride + o] = to_bf16(is_relu && sum < 0 ? 0 : sum);
    }
  }
}

constexpr Bf16Kernels kEmulatedAvx512{.pack_left = emulated_pack_left<false>,
                                      .pack_right = emulated_pack_right,
                                      .multiply = emulated_avx512,
                                      .round = emulated_round};
constexpr Bf16Kernels kEmulatedAmx{.pack_left = emulated_pack_left<true>,
                                   .pack_right = emulated_pack_right,
                                   .multiply = emulated_amx,
                                   .round = emulated_round};

}  // namespace

bool has_bf16_kernels(Bf16Unit unit) noexcept {
  if (unit == Bf16Unit::avx512) return avx512_kernels() != nullptr && processor_has_avx512_bf16();
  if (unit == Bf16Unit::amx) return amx_kernels() != nullptr && processor_has_amx() && system_grants_amx();
  return is_emulated(unit);
}

const Bf16Kernels& bf16_kernels(Bf16Unit unit) noexcept {
  switch (unit) {
    case Bf16Unit::avx512:
      return *avx512_kernels();
    case Bf16Unit::amx:
      return *amx_kernels();
    case Bf16Unit::emulated_amx:
      return kEmulatedAmx;
    case Bf16Unit::emulated_avx512:
    case Bf16Unit::none:
      break;
  }
  return kEmulatedAvx512;
}

}  // namespace lockstep::model::cpu
