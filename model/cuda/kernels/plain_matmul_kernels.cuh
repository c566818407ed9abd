/// \file
/// A simple tiled matrix multiplication: each block computes a square of the output, and loads the factors into shared
/// memory one tile at a time.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"

namespace lockstep::model::cuda {

inline constexpr unsigned kTile = 16;
/// Largest number of rows of the grid. A block continues with the tile this many rows further down.
inline constexpr unsigned kMaxTileRows = 65535;

/// A matrix of `rows` by `columns`, whose element (r, c) is at data[r * row_step + c * column_step].
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t rows, columns;
  std::int64_t row_step, column_step;
};

struct ProductTiles {
  float a[kTile][kTile + 1], b[kTile][kTile + 1];  // one unused column, so that neighbours lie in different banks
};

template <class T>
__device__ float element(const MatrixView<T>& matrix, std::int64_t row, std::int64_t column) {
  float value[1] = {0};
  if (row < matrix.rows && column < matrix.columns) {
    load<1>(matrix.data + row * matrix.row_step + column * matrix.column_step, false, value);
  }
  return value[0];
}

/// out = a b, or out += a b; kTile * kTile threads per block.
template <class In, class Out>
__global__ void __launch_bounds__(kTile* kTile)
    plain_product(MatrixView<In> a, MatrixView<In> b, Out* out, bool accumulate) {
  ProductTiles& tiles = shared<ProductTiles>();
  const unsigned x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile + x;
  for (std::int64_t top = static_cast<std::int64_t>(blockIdx.y) * kTile; top < a.rows; top += gridDim.y * kTile) {
    const std::int64_t row = top + y;
    float sum = 0;
    for (std::int64_t term = 0; term < a.columns; term += kTile) {
      tiles.a[y][x] = element(a, row, term + x);
      tiles.b[y][x] = element(b, term + y, column);
      __syncthreads();
#pragma unroll
      for (unsigned k = 0; k < kTile; ++k) sum += tiles.a[y][k] * tiles.b[k][x];
      __syncthreads();
    }
    if (row < a.rows && column < b.columns) {
      Out* const at = out + row * b.columns + column;
      float value[1] = {0};
      if (accumulate) load<1>(at, false, value);
      value[0] += sum;
      store<1>(value, false, at);
    }
  }
}

}  // namespace lockstep::model::cuda
