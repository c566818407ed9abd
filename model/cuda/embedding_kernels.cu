#include <algorithm>

#include "model/cuda/column_sums.cuh"
#include "model/cuda/element_kernels.cuh"
#include "model/cuda/embedding_kernels.cuh"
#include "model/cuda/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Rows that one block finds the position of: a lane each; its warps share the tokens to compare with.
constexpr unsigned kRowsToSort = kWarp;

struct SortCounts {
  std::int32_t before[kBlock], earlier[kBlock], equal[kBlock];
};

/// sorted[position of row r] = r, for `count` rows.
__global__ void __launch_bounds__(kBlock) sort_rows(const std::int32_t* tokens, int count, SortedRow* sorted) {
  auto& counts = shared<SortCounts>();
  const int row = static_cast<int>(blockIdx.x * kRowsToSort + threadIdx.x % kWarp);
  const std::int32_t own = row < count ? tokens[row] : 0;
  std::int32_t before = 0, earlier = 0, equal = 0;  // smaller tokens; equal ones in rows before this; equal ones
#pragma unroll 8
  for (int other = static_cast<int>(threadIdx.x / kWarp); other < count; other += kBlock / kWarp) {
    const std::int32_t token = tokens[other];
    before += token < own;
    equal += token == own;
    earlier += token == own && other < row;
  }
  counts.before[threadIdx.x] = before;
  counts.earlier[threadIdx.x] = earlier;
  counts.equal[threadIdx.x] = equal;
  __syncthreads();
  if (threadIdx.x >= kWarp || row >= count) return;
  for (unsigned warp = 1; warp < kBlock / kWarp; ++warp) {
    before += counts.before[warp * kWarp + threadIdx.x];
    earlier += counts.earlier[warp * kWarp + threadIdx.x];
    equal += counts.equal[warp * kWarp + threadIdx.x];
  }
  sorted[before + earlier] = {row, earlier == 0 ? equal : 0};
}

template <int kWidth, class T>
void add_rows(cudaStream_t stream, const SortedRow* sorted, const std::int32_t* tokens, std::int64_t rows, const T* d_y,
              const Tensor& d_table) {
  constexpr std::int64_t kColumnsOfBlock = kWarp * kWidth;
  auto* const to = static_cast<float*>(d_table.data);
  launch("add_embedding_gradient", add_runs<kWidth, T>,
         {.blocks = static_cast<unsigned>(rows),
          .parts = static_cast<unsigned>((d_table.columns + kColumnsOfBlock - 1) / kColumnsOfBlock),
          .threads = kBlock,
          .shared_bytes = sizeof(RunWorkspace<kWidth>)},
         stream, sorted, tokens, d_y, d_table.rows, d_table.columns, takes_packs<kWidth>(d_y), takes_packs<kWidth>(to),
         to);
}

}  // namespace

void embedding_forward(cudaStream_t stream, const Tensor& tokens, const Tensor& table, const Tensor& positions,
                       const Tensor& y) {
  if (y.count() == 0) return;
  constexpr std::int64_t kRowsOfBlock = kBlock / kWarp;
  const Grid grid{.blocks = static_cast<unsigned>(std::min((y.rows + kRowsOfBlock - 1) / kRowsOfBlock, kMostBlocks)),
                  .threads = kBlock};
  for_type("embedding_forward", y.type, [&]<class T>(T) {
    constexpr int kWidth = kWideWidth<T>;
    const LookUp<T> p{static_cast<const std::int32_t*>(tokens.data),
                      static_cast<const T*>(table.data),
                      static_cast<const T*>(positions.data),
                      table.rows,
                      y.columns,
                      static_cast<unsigned>(positions.rows),
                      static_cast<T*>(y.data)};
    if (y.columns % kWidth == 0) {
      const bool wide = takes_packs<kWidth>(p.table) && takes_packs<kWidth>(p.positions) && takes_packs<kWidth>(p.y);
      launch("embedding_forward", look_up_rows<kWidth, T>, grid, stream, p, y.rows, wide);
    } else {
      launch("embedding_forward", look_up_rows<1, T>, grid, stream, p, y.rows, true);
    }
  });
}

void add_embedding_gradient(cudaStream_t stream, const Tensor& tokens, const Tensor& d_y, const Tensor& d_table,
                            const Scratch& scratch) {
  if (d_y.count() == 0) return;
  if (scratch.bytes < kSortedRows * sizeof(SortedRow)) {
    throw std::invalid_argument("scratch for sorted rows has " + std::to_string(scratch.bytes) + " bytes, needed are " +
                                std::to_string(kSortedRows * sizeof(SortedRow)));
  }
  auto* const sorted = static_cast<SortedRow*>(scratch.data);
  for_type("embedding_backward", d_y.type, [&]<class T>(T) {
    for (std::int64_t first = 0; first < d_y.rows; first += kSortedRows) {
      const std::int64_t rows = std::min(kSortedRows, d_y.rows - first);
      const auto* const own = static_cast<const std::int32_t*>(tokens.data) + first;
      const auto* const gradients = static_cast<const T*>(d_y.data) + first * d_y.columns;
      launch("sort_rows", sort_rows,
             {.blocks = static_cast<unsigned>((rows + kRowsToSort - 1) / kRowsToSort),
              .threads = kBlock,
              .shared_bytes = sizeof(SortCounts)},
             stream, own, rows, sorted);
      if (d_y.columns % kWideWidth<T> == 0) {
        add_rows<kWideWidth<T>>(stream, sorted, own, rows, gradients, d_table);
      } else {
        add_rows<1>(stream, sorted, own, rows, gradients, d_table);
      }
    }
  });
}

}  // namespace lockstep::model::cuda
