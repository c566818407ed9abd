/// \file
/// Column sums of values that a pass computes for each element of a matrix, in two stages with a fixed order.
#pragma once

#include <cstdint>
#include <string>

#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/tiling.hpp"

namespace lockstep::model::cuda {

/// Destinations of kSums sums of each column: kSums vectors.
template <int kSums>
struct SumTargets {
  float* to[kSums];
};

/// Workspace: one pack of sums per thread.
template <int kWidth>
struct SumWorkspace {
  float of_thread[kWidth][kBlock];
};

/// Adds values over the rows of this block. body.at<kWidth>(row, column, values) computes values[kSums][kWidth] for
/// columns column ... column + kWidth - 1. The sums of column c go to targets.to[s] + blockIdx.y * part_step + c.
/// Threads are arranged in rows of 1 << column_bits; block y processes the rows from y * rows_of_part on.
template <int kWidth, int kSums, class Body>
__global__ void __launch_bounds__(kBlock)
    sum_columns(Body body, std::int64_t rows, std::int64_t columns, std::int64_t rows_of_part, int column_bits,
                std::int64_t part_step, bool add, SumTargets<kSums> targets) {
  const unsigned columns_of_block = 1u << column_bits;
  const std::int64_t lane = threadIdx.x & (columns_of_block - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  const std::int64_t begin = blockIdx.y * rows_of_part;
  const std::int64_t end = begin + rows_of_part < rows ? begin + rows_of_part : rows;
  float own[kSums][kWidth] = {};
  if (column < columns) {
    for (std::int64_t row = begin + (threadIdx.x >> column_bits); row < end; row += kBlock >> column_bits) {
      float values[kSums][kWidth];
      body.template at<kWidth>(row, column, values);
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) own[s][k] += values[s][k];
      }
    }
  }
  auto& all = shared<SumWorkspace<kWidth>>();
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    __syncthreads();  // all threads have read the previous sum
#pragma unroll
    for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] = own[s][k];
    __syncthreads();
    for (unsigned half = kBlock / 2; half >= columns_of_block; half /= 2) {
      if (threadIdx.x < half) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] += all.of_thread[k][threadIdx.x + half];
      }
      __syncthreads();
    }
    if (threadIdx.x >= columns_of_block || column >= columns || targets.to[s] == nullptr) continue;
    float* const to = targets.to[s] + blockIdx.y * part_step + column;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float sum = all.of_thread[k][threadIdx.x];
      to[k] = add ? to[k] + sum : sum;
    }
  }
}

/// targets = or += sums over the parts. Part p of sum s is at parts + (p * kSums + s) * columns. A block adds 32
/// columns of sum blockIdx.y: thread t adds every eighth part of column t % 32; then the eight sums are added.
template <int kSums>
__global__ void __launch_bounds__(kBlock)
    add_parts(const float* parts, int count, std::int64_t columns, bool add, SumTargets<kSums> targets) {
  constexpr unsigned kLanes = kBlock / kWarp;
  auto& all = shared<SumWorkspace<1>>().of_thread[0];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp;
  const float* const from = parts + blockIdx.y * columns;
  float sum = 0;
  if (column < columns) {
    for (int part = static_cast<int>(threadIdx.x / kWarp); part < count; part += kLanes) {
      sum += from[part * kSums * columns + column];
    }
  }
  all[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp || column >= columns) return;
  for (unsigned lane = 1; lane < kLanes; ++lane) sum += all[lane * kWarp + threadIdx.x];
  float* to = targets.to[0];
#pragma unroll
  for (int s = 1; s < kSums; ++s) {
    if (blockIdx.y == static_cast<unsigned>(s)) to = targets.to[s];
  }
  if (to != nullptr) to[column] = add ? to[column] + sum : sum;
}

/// Enqueues add_parts() for the parts in `scratch`.
template <int kSums>
void run_add_parts(cudaStream_t stream, const Scratch& scratch, unsigned parts, std::int64_t columns, bool add,
                   const SumTargets<kSums>& targets) {
  launch("add_parts", add_parts<kSums>,
         {.blocks = static_cast<unsigned>((columns + kWarp - 1) / kWarp),
          .parts = kSums,
          .threads = kBlock,
          .shared_bytes = sizeof(SumWorkspace<1>)},
         stream, static_cast<const float*>(scratch.data), parts, columns, add, targets);
}

/// Enqueues both stages: targets = or += column sums of the body's values. Without rows the sums are zero.
template <int kWidth, int kSums, class Body>
void run_sum_columns(const char* name, cudaStream_t stream, const Body& body, std::int64_t rows, std::int64_t columns,
                     bool add, const SumTargets<kSums>& targets, const Scratch& scratch) {
  if (columns == 0) return;
  Tiling tiling = tiling_of(rows, columns, kWidth, kBlock);
  const auto part_bytes = static_cast<std::size_t>(columns) * kSums * sizeof(float);
  while (tiling.parts > 1 && tiling.parts * part_bytes > scratch.bytes) {
    tiling.rows_of_part *= 2;
    tiling.parts = static_cast<unsigned>((rows + tiling.rows_of_part - 1) / tiling.rows_of_part);
  }
  const bool alone = tiling.parts == 1;
  SumTargets<kSums> first = targets;
  for (int s = 0; s < kSums && !alone; ++s) first.to[s] = static_cast<float*>(scratch.data) + s * columns;
  launch(
      name, sum_columns<kWidth, kSums, Body>,
      {.blocks = tiling.tiles, .parts = tiling.parts, .threads = kBlock, .shared_bytes = sizeof(SumWorkspace<kWidth>)},
      stream, body, rows, columns, tiling.rows_of_part, tiling.column_bits, columns * kSums, alone && add, first);
  if (!alone) run_add_parts<kSums>(stream, scratch, tiling.parts, columns, add, targets);
}

}  // namespace lockstep::model::cuda
