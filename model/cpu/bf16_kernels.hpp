/// \file
/// The innermost loops of products in bf16, for one thread: AMX tiles, AVX512-BF16, and an emulation of the bits of
/// either. All read the same packed factors:
///
///   left  [rows, inner]     panels of 32 rows:    [inner / 32][2 tiles][16 rows][32 inner]
///   right [inner, columns]  panels of 32 columns: [columns / 32][inner / 32][2 tiles][16 pairs][16 columns][2 inner]
///
/// Missing elements at the ends are zero. For AVX512-BF16 the rows of a left panel follow each other, and a left panel
/// of a transposed factor, whose rows are neighbours in memory, is [inner / 32][16 pairs][32 rows][2 inner]. For AMX,
/// which takes a cycle for each row, a panel of 17 to 30 rows is two tiles of half as many.
///
/// Order of the sums. AVX512-BF16 adds the products to the sum in pairs, the odd one of a pair first. AMX adds the even
/// and the odd ones of 32 separately, beginning at zero, adds both, then adds that to the sum. Every addition is fused
/// with its product and rounds to nearest; denormal numbers count and result as zero. A sum that is stored and loaded
/// again between two multiples of 32 has the same bits.
#pragma once

#include <cstddef>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16_number.hpp"
#include "model/cpu/blocked_gemm.hpp"

namespace lockstep::model::cpu {

/// Rows of a left panel, columns of a right one, and inner elements of a step.
inline constexpr std::size_t kBf16Panel = 32;
/// Elements of a step of a panel, and of one of its two tiles.
inline constexpr std::size_t kBf16Step = kBf16Panel * kBf16Panel;
inline constexpr std::size_t kBf16Tile = kBf16Step / 2;

constexpr std::size_t bf16_panels(std::size_t count) noexcept { return (count + kBf16Panel - 1) / kBf16Panel; }

struct Bf16Kernels {
  /// Rounds and packs up to 32 rows of a.
  void (*pack_left)(const Factor& a, std::size_t rows, std::size_t inner, Bf16* panel) = nullptr;
  /// Rounds and packs one panel of up to 32 columns of b; memory aligned to 64 bytes, as everywhere here.
  void (*pack_right)(const Factor& b, std::size_t inner, std::size_t columns, Bf16* panel) = nullptr;
  /// c [rows, 32] = or += a panel of a times a panel of b, of `steps` steps.
  void (*multiply)(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c, std::size_t stride,
                   bool accumulate) = nullptr;
  /// The same for panels that pack_left made of a transposed factor; nullptr: these are laid out as others.
  void (*multiply_turned)(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c,
                          std::size_t stride, bool accumulate) = nullptr;
  /// Prepares the calling thread for panels of so many rows; and ends that. nullptr: not needed.
  void (*begin)(std::size_t rows) = nullptr;
  void (*end)() = nullptr;
  std::size_t max_inner = 512;  ///< inner elements of a block, for speed alone
};

/// The kernels of a unit; those of avx512 and amx only where has_bf16_kernels() says so.
const Bf16Kernels& bf16_kernels(Bf16Unit unit) noexcept;

/// True if processor, compiler and system have the unit's instructions. Asks the system for AMX.
bool has_bf16_kernels(Bf16Unit unit) noexcept;

/// Rows of the first tile of a left panel for AMX.
constexpr std::size_t rows_of_first_tile(std::size_t rows) noexcept {
  return rows > 30 ? 16 : rows <= 16 ? rows : (rows + 1) / 2;
}

// bf16_avx512.cpp, bf16_amx.cpp; nullptr: not compiled for this processor.
const Bf16Kernels* avx512_kernels() noexcept;
bool processor_has_avx512_bf16() noexcept;
const Bf16Kernels* amx_kernels() noexcept;
bool processor_has_amx() noexcept;
bool system_grants_amx() noexcept;

}  // namespace lockstep::model::cpu
