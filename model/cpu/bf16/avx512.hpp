/// \file
/// Packing of left bf16 panels by AVX-512, also used for AMX.
#pragma once

#include "model/cpu/bf16/kernels.hpp"

namespace lockstep::model::cpu {

/// Packs a left panel whose first tile has `first` rows. The processor must have AVX512-BF16.
void avx512_pack_left(const Bf16Factor& a, std::size_t rows, std::size_t first, std::size_t inner, Bf16* panel);
void avx512_pack_right(const Bf16Factor& b, std::size_t inner, std::size_t columns, Bf16* panel);
void avx512_round(const Bf16Rounding& rounding);

}  // namespace lockstep::model::cpu
