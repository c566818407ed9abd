/// \file
/// The innermost loops of products in bf16, for one thread: AMX tiles, AVX512-BF16, and emulations with the same bits.
/// All read the same packed factors:
///
///   left  [rows, inner]     panels of 32 rows:    [inner / 32][2 tiles][16 rows][32 inner]
///   right [inner, columns]  panels of 32 columns: [columns / 32][inner / 32][2 tiles][16 pairs][16 columns][2 inner]
///
/// Missing elements at the ends are zero. Exceptions: for AVX512-BF16, the 32 rows of a left panel are consecutive, and
/// a left panel of a transposed factor, whose rows are neighbours in memory, is [inner / 32][16 pairs][32 rows][2
/// inner]. For AMX, whose tiles take a cycle per row, a panel of 17 to 30 rows has two tiles of half as many rows.
///
/// Order of the sums. AVX512-BF16 adds the products of a pair to the sum, the odd one first. AMX adds the even and the
/// odd products of 32 in two sums that begin at zero, adds both, then adds the result to the total. Every addition is
/// fused with its product and rounds to nearest; denormal inputs and results are zero. Storing a sum and loading it
/// again at a multiple of 32 does not change the bits.
#pragma once

#include <cstddef>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/blocked_gemm.hpp"

namespace lockstep::model::cpu {

/// Rows of a left panel, columns of a right one, and inner elements of a step.
inline constexpr std::size_t kBf16Panel = 32;
/// Elements of a step of a panel, and of one of its two tiles.
inline constexpr std::size_t kBf16Step = kBf16Panel * kBf16Panel;
inline constexpr std::size_t kBf16Tile = kBf16Step / 2;

constexpr std::size_t bf16_panels(std::size_t count) noexcept { return (count + kBf16Panel - 1) / kBf16Panel; }

/// A factor in memory, with the layout of Factor: in bf16, or in fp32, which packing rounds.
struct Bf16Factor {
  Bf16Factor(const Factor& factor)  // NOLINT(google-explicit-constructor): a Factor is one
      : floats(factor.data), stride(factor.stride), transposed(factor.transposed) {}
  Bf16Factor(const float* data, std::size_t between, bool is_transposed = false)
      : floats(data), stride(between), transposed(is_transposed) {}
  Bf16Factor(const Bf16* data, std::size_t between, bool is_transposed = false)
      : halves(data), stride(between), transposed(is_transposed) {}
  /// A factor from element `first` of a tensor on, of either type.
  Bf16Factor(const Tensor& tensor, std::size_t first, std::size_t between, bool is_transposed = false)
      : stride(between), transposed(is_transposed) {
    if (tensor.type == ElementType::bfloat16) {
      halves = static_cast<const Bf16*>(tensor.data) + first;
    } else {
      floats = static_cast<const float*>(tensor.data) + first;
    }
  }

  /// Returns the submatrix that begins at row `rows` and column `columns`.
  Bf16Factor from(std::size_t rows, std::size_t columns) const noexcept {
    const std::size_t offset = transposed ? columns * stride + rows : rows * stride + columns;
    Bf16Factor part = *this;
    if (halves != nullptr) {
      part.halves += offset;
    } else {
      part.floats += offset;
    }
    return part;
  }
  /// Calls work(elements) with const Bf16* or const float*.
  template <class Work>
  void with_elements(const Work& work) const {
    if (halves != nullptr) {
      work(halves);
    } else {
      work(floats);
    }
  }

  const float* floats = nullptr;
  const Bf16* halves = nullptr;  ///< one of the two is nullptr
  std::size_t stride = 0;
  bool transposed = false;
};

/// to [rows, columns] = max(sums + bias, 0), rounded. Rows of the sums are 32 elements apart; columns <= 32. bias:
/// nullptr for none. is_relu: false omits the maximum.
struct Bf16Rounding {
  std::size_t rows = 0, columns = 0;
  const float* sums = nullptr;
  const float* bias = nullptr;
  bool is_relu = false;
  Bf16* to = nullptr;
  std::size_t stride = 0;
};

struct Bf16Kernels {
  /// Packs up to 32 rows of a.
  void (*pack_left)(const Bf16Factor& a, std::size_t rows, std::size_t inner, Bf16* panel) = nullptr;
  /// Packs one panel of up to 32 columns of b. Panels are always aligned to 64 bytes.
  void (*pack_right)(const Bf16Factor& b, std::size_t inner, std::size_t columns, Bf16* panel) = nullptr;
  /// c [rows, 32] = or += a panel of a times a panel of b, over `steps` steps.
  void (*multiply)(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c, std::size_t stride,
                   bool accumulate) = nullptr;
  /// The same for panels that pack_left packed from a transposed factor; nullptr: they have the same layout as others.
  void (*multiply_turned)(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c,
                          std::size_t stride, bool accumulate) = nullptr;
  /// Called on a thread before products with panels of `rows` rows, and after them; nullptr: not needed.
  void (*begin)(std::size_t rows) = nullptr;
  void (*end)() = nullptr;
  void (*round)(const Bf16Rounding& rounding) = nullptr;
  std::size_t max_inner = 512;  ///< inner elements of a block; only affects speed
};

/// Returns the kernels of a unit. For avx512 and amx, has_bf16_kernels() must be true.
const Bf16Kernels& bf16_kernels(Bf16Unit unit) noexcept;

/// True if processor, compiler and operating system support the unit. For AMX it requests the permission of the system.
bool has_bf16_kernels(Bf16Unit unit) noexcept;

/// Returns the rows of the first tile of a left panel for AMX.
constexpr std::size_t rows_of_first_tile(std::size_t rows) noexcept {
  return rows > 30 ? 16 : rows <= 16 ? rows : (rows + 1) / 2;
}

// bf16/avx512.cpp, bf16/amx.cpp; nullptr: not compiled for this processor.
const Bf16Kernels* avx512_kernels() noexcept;
bool processor_has_avx512_bf16() noexcept;
const Bf16Kernels* amx_kernels() noexcept;
bool processor_has_amx() noexcept;
bool system_grants_amx() noexcept;

}  // namespace lockstep::model::cpu
