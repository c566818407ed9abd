#include "model/cpu/thin_gemm.hpp"

#include <algorithm>
#include <cstring>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

namespace {

/// A vector of kWidth floats: one or several registers, depending on the instruction set.
template <int kWidth>
struct LanesOf {
  typedef float Type __attribute__((vector_size(kWidth * sizeof(float))));
};
template <int kWidth>
using Lanes = typename LanesOf<kWidth>::Type;

/// Inner elements of a packed block: 16 KiB, half of a first-level cache.
constexpr std::size_t kBlock = 256;

template <int kWidth>
LOCKSTEP_INLINE void load(Lanes<kWidth>& lanes, const float* from) {
  std::memcpy(&lanes, from, sizeof(lanes));
}

/// Computes rows [row, row + kRows) for one block of the inner dimension; b is packed with kWidth columns.
template <int kWidth, int kRows>
LOCKSTEP_INLINE void product_rows(const float* __restrict a, std::size_t stride, const float* __restrict packed,
                                  std::size_t count, float* __restrict c, std::size_t n, bool add) {
  Lanes<kWidth> sums[kRows] = {};
  for (std::size_t k = 0; k < count; ++k) {
    Lanes<kWidth> b;
    load<kWidth>(b, packed + k * kWidth);
    for (int r = 0; r < kRows; ++r) sums[r] += a[static_cast<std::size_t>(r) * stride + k] * b;
  }
  for (int r = 0; r < kRows; ++r) {
    float* const to = c + static_cast<std::size_t>(r) * n;
    for (std::size_t o = 0; o < n; ++o) to[o] = add ? to[o] + sums[r][o] : sums[r][o];
  }
}

template <int kWidth>
LOCKSTEP_INLINE void product(const float* a, const float* b, float* c, std::size_t inner, std::size_t n,
                             std::size_t begin, std::size_t end, bool add) {
  // Six rows give enough independent sums to hide the latency of additions, and fit sixteen registers of eight floats.
  constexpr int kRows = 6;
  alignas(64) float packed[kBlock * kWidth] = {};
  for (std::size_t first = 0; first < inner; first += kBlock) {
    const std::size_t count = std::min(kBlock, inner - first);
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t o = 0; o < n; ++o) packed[k * kWidth + o] = b[(first + k) * n + o];
    }
    const bool add_here = add || first > 0;
    std::size_t row = begin;
    for (; row + kRows <= end; row += kRows) {
      product_rows<kWidth, kRows>(a + row * inner + first, inner, packed, count, c + row * n, n, add_here);
    }
    for (; row < end; ++row) {
      product_rows<kWidth, 1>(a + row * inner + first, inner, packed, count, c + row * n, n, add_here);
    }
  }
}

/// For n = 1: dot products of the rows of a with b, in 4 x 16 parallel sums.
LOCKSTEP_INLINE void dot_rows(const float* a, const float* b, float* c, std::size_t inner, std::size_t begin,
                              std::size_t end, bool add) {
  constexpr std::size_t kWidth = 16, kSums = 4;
  for (std::size_t row = begin; row < end; ++row) {
    const float* const x = a + row * inner;
    Lanes<kWidth> sums[kSums] = {};
    std::size_t k = 0;
    for (; k + kSums * kWidth <= inner; k += kSums * kWidth) {
      for (std::size_t s = 0; s < kSums; ++s) {
        Lanes<kWidth> left, right;
        load<kWidth>(left, x + k + s * kWidth);
        load<kWidth>(right, b + k + s * kWidth);
        sums[s] += left * right;
      }
    }
    for (; k + kWidth <= inner; k += kWidth) {
      Lanes<kWidth> left, right;
      load<kWidth>(left, x + k);
      load<kWidth>(right, b + k);
      sums[0] += left * right;
    }
    const Lanes<kWidth> sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float halves[kWidth / 2];
    for (std::size_t lane = 0; lane < kWidth / 2; ++lane) halves[lane] = sum[lane] + sum[lane + kWidth / 2];
    float total =
        ((halves[0] + halves[1]) + (halves[2] + halves[3])) + ((halves[4] + halves[5]) + (halves[6] + halves[7]));
    for (; k < inner; ++k) total += x[k] * b[k];
    c[row] = add ? c[row] + total : total;
  }
}

/// Computes kColumns columns of 16 kVectors rows of a^T b. The first `skip` rows are not stored.
template <int kColumns, int kVectors>
LOCKSTEP_INLINE void transposed_tile(const float* __restrict a, const float* __restrict b, float* __restrict c,
                                     std::size_t inner, std::size_t rows, std::size_t n, std::size_t skip, bool add) {
  constexpr std::size_t kWidth = 16;
  Lanes<kWidth> sums[kColumns][kVectors] = {};
  for (std::size_t k = 0; k < inner; ++k) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Lanes<kWidth> x;
      load<kWidth>(x, a + k * rows + v * kWidth);
      for (std::size_t o = 0; o < kColumns; ++o) sums[o][v] += x * b[k * n + o];
    }
  }
  for (std::size_t row = skip; row < kVectors * kWidth; ++row) {
    for (std::size_t o = 0; o < kColumns; ++o) {
      const float sum = sums[o][row / kWidth][row % kWidth];
      c[row * n + o] = add ? c[row * n + o] + sum : sum;
    }
  }
}

/// Computes all columns of some rows, in groups of four, two and one, so that the sums stay in registers.
template <int kVectors>
LOCKSTEP_INLINE void transposed_rows(const float* a, const float* b, float* c, std::size_t inner, std::size_t rows,
                                     std::size_t n, std::size_t skip, bool add) {
  std::size_t o = 0;
  for (; o + 4 <= n; o += 4) transposed_tile<4, kVectors>(a, b + o, c + o, inner, rows, n, skip, add);
  for (; o + 2 <= n; o += 2) transposed_tile<2, kVectors>(a, b + o, c + o, inner, rows, n, skip, add);
  for (; o < n; ++o) transposed_tile<1, kVectors>(a, b + o, c + o, inner, rows, n, skip, add);
}

/// Computes rows [row, row + kRows) of a b^T for up to kBlock columns; b is packed as [inner][kBlock].
template <int kRows>
LOCKSTEP_INLINE void inner_rows(const float* __restrict a, const float* __restrict packed, float* __restrict c,
                                std::size_t inner, std::size_t columns, std::size_t count, bool add) {
  constexpr std::size_t kWidth = 16;
  for (std::size_t i = 0; i < count; i += kWidth) {
    Lanes<kWidth> sums[kRows] = {};
    for (std::size_t k = 0; k < inner; ++k) {
      Lanes<kWidth> b;
      load<kWidth>(b, packed + k * kBlock + i);
      for (int r = 0; r < kRows; ++r) sums[r] += a[static_cast<std::size_t>(r) * inner + k] * b;
    }
    const std::size_t here = std::min(kWidth, count - i);
    for (int r = 0; r < kRows; ++r) {
      float* const to = c + static_cast<std::size_t>(r) * columns + i;
      if (here == kWidth && !add) {
        std::memcpy(to, &sums[r], sizeof(sums[r]));
      } else {
        for (std::size_t lane = 0; lane < here; ++lane) to[lane] = add ? to[lane] + sums[r][lane] : sums[r][lane];
      }
    }
  }
}

}  // namespace

LOCKSTEP_CLONES void thin_product(std::span<const float> a, std::span<const float> b, std::span<float> c,
                                  std::size_t inner, std::size_t n, std::size_t begin, std::size_t end,
                                  Accumulate accumulate) {
  const bool add = accumulate == Accumulate::yes;
  if (n == 1) return dot_rows(a.data(), b.data(), c.data(), inner, begin, end, add);
  if (n <= 4) return product<4>(a.data(), b.data(), c.data(), inner, n, begin, end, add);
  if (n <= 8) return product<8>(a.data(), b.data(), c.data(), inner, n, begin, end, add);
  product<16>(a.data(), b.data(), c.data(), inner, n, begin, end, add);
}

LOCKSTEP_CLONES void thin_product_of_transposed(std::span<const float> a, std::span<const float> b, std::span<float> c,
                                                std::size_t rows, std::size_t n, std::size_t begin, std::size_t end,
                                                Accumulate accumulate) {
  constexpr std::size_t kWidth = 16;
  const bool add = accumulate == Accumulate::yes;
  const std::size_t inner = a.size() / rows;
  std::size_t row = begin;
  for (; row + 2 * kWidth <= end; row += 2 * kWidth) {
    transposed_rows<2>(a.data() + row, b.data(), c.data() + row * n, inner, rows, n, 0, add);
  }
  for (; row + kWidth <= end; row += kWidth) {
    transposed_rows<1>(a.data() + row, b.data(), c.data() + row * n, inner, rows, n, 0, add);
  }
  if (row < end && end >= kWidth) {
    const std::size_t last = end - kWidth;
    transposed_rows<1>(a.data() + last, b.data(), c.data() + last * n, inner, rows, n, row - last, add);
    return;
  }
  for (; row < end; ++row) {
    for (std::size_t o = 0; o < n; ++o) {
      float sum = 0;
      for (std::size_t k = 0; k < inner; ++k) sum += a[k * rows + row] * b[k * n + o];
      c[row * n + o] = add ? c[row * n + o] + sum : sum;
    }
  }
}

LOCKSTEP_CLONES void thin_inner_product(std::span<const float> a, std::span<const float> b, std::span<float> c,
                                        std::size_t inner, std::size_t columns, std::size_t begin, std::size_t end,
                                        Accumulate accumulate) {
  constexpr int kRows = 4;
  const bool add = accumulate == Accumulate::yes;
  alignas(64) float packed[kThin * kBlock] = {};
  for (std::size_t first = 0; first < columns; first += kBlock) {
    const std::size_t count = std::min(kBlock, columns - first);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < inner; ++k) packed[k * kBlock + i] = b[(first + i) * inner + k];
    }
    std::size_t row = begin;
    for (; row + kRows <= end; row += kRows) {
      inner_rows<kRows>(a.data() + row * inner, packed, c.data() + row * columns + first, inner, columns, count, add);
    }
    for (; row < end; ++row) {
      inner_rows<1>(a.data() + row * inner, packed, c.data() + row * columns + first, inner, columns, count, add);
    }
  }
}

}  // namespace lockstep::model::cpu
