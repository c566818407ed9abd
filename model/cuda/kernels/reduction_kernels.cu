#include <algorithm>
#include <stdexcept>

#include "model/cuda/kernels/element_kernels.cuh"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/reduction_kernels.cuh"
#include "model/cuda/kernels/tiling.hpp"

namespace lockstep::model::cuda {

namespace {

/// d_bias = or += sum of the parts of each column. 32 columns per block: thread t adds every eighth part of column t %
/// 32; then the eight sums are added.
__global__ void __launch_bounds__(kBlock)
    add_column_parts(const float* parts, int count, std::int64_t columns, bool add, float* d_bias) {
  constexpr unsigned kLanes = kBlock / kWarp;
  auto& all = shared<ColumnSums<1>>().of_thread[0];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp;
  float sum = 0;
  if (column < columns) {
    for (int part = static_cast<int>(threadIdx.x / kWarp); part < count; part += kLanes) {
      sum += parts[part * columns + column];
    }
  }
  all[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp || column >= columns) return;
  for (unsigned lane = 1; lane < kLanes; ++lane) sum += all[lane * kWarp + threadIdx.x];
  d_bias[column] = add ? d_bias[column] + sum : sum;
}

/// Adds the parts. One block.
__global__ void __launch_bounds__(kBlock) write_sum(const Sums* parts, int count, bool add, double* out) {
  const Sums total = sum_of_parts(parts, count, shared<WarpSums>());
  if (threadIdx.x == 0) *out = add ? *out + total.loss : total.loss;
}

void need(std::size_t bytes, const Scratch& scratch) {
  if (scratch.bytes < bytes) {
    throw std::invalid_argument("scratch for sums has " + std::to_string(scratch.bytes) + " bytes, needed are " +
                                std::to_string(bytes));
  }
}

template <int kWidth, Activation kActivation, class T>
void gradient_with_bias(cudaStream_t stream, const Tensor& y, const Tensor& d_y, bool add, const Tensor& d_bias,
                        const Scratch& scratch) {
  const Tiling tiling = tiling_of(d_y.rows, d_y.columns, kWidth, kBlock);
  const auto* const value = static_cast<const T*>(y.data);
  auto* const gradient = static_cast<T*>(d_y.data);
  const bool reads_y = kActivation != Activation::none;
  const bool wide = takes_packs<kWidth>(gradient) && (!reads_y || takes_packs<kWidth>(value));
  auto* const sums = static_cast<float*>(d_bias.data);
  const bool alone = tiling.parts == 1;
  if (!alone) need(tiling.parts * static_cast<std::size_t>(d_y.columns) * sizeof(float), scratch);
  auto* const parts = static_cast<float*>(scratch.data);
  launch("activation_gradient", gradient_columns<kWidth, T, kActivation>,
         {.blocks = tiling.tiles, .parts = tiling.parts, .threads = kBlock, .shared_bytes = sizeof(ColumnSums<kWidth>)},
         stream, value, gradient, d_y.rows, d_y.columns, tiling.rows_of_part, tiling.column_bits, wide, alone && add,
         alone ? sums : parts);
  if (alone) return;
  launch("add_column_parts", add_column_parts,
         {.blocks = static_cast<unsigned>((d_y.columns + kWarp - 1) / kWarp),
          .threads = kBlock,
          .shared_bytes = sizeof(ColumnSums<1>)},
         stream, parts, tiling.parts, d_y.columns, add, sums);
}

template <Activation kActivation, class T>
void gradient_all(cudaStream_t stream, const Tensor& y, const Tensor& d_y, bool add, const Tensor& d_bias,
                  const Scratch& scratch) {
  constexpr int kWidth = kWideWidth<T>;
  if (!d_bias.present()) {
    if constexpr (kActivation != Activation::none) {
      const GradientBefore<T, kActivation> body{static_cast<const T*>(y.data), static_cast<T*>(d_y.data)};
      run_each<kWidth>("activation_gradient", stream, body, d_y.count(),
                       takes_packs<kWidth>(body.y) && takes_packs<kWidth>(body.d_y));
    }
    return;
  }
  if (d_y.columns == 0) return;
  if (d_y.columns % kWidth == 0) {
    gradient_with_bias<kWidth, kActivation, T>(stream, y, d_y, add, d_bias, scratch);
  } else {
    gradient_with_bias<1, kActivation, T>(stream, y, d_y, add, d_bias, scratch);
  }
}

template <class T>
void gradient_as(cudaStream_t stream, Activation activation, const Tensor& y, const Tensor& d_y, bool add,
                 const Tensor& d_bias, const Scratch& scratch) {
  switch (activation) {
    case Activation::none:
      return gradient_all<Activation::none, T>(stream, y, d_y, add, d_bias, scratch);
    case Activation::relu:
      return gradient_all<Activation::relu, T>(stream, y, d_y, add, d_bias, scratch);
    case Activation::tanh:
      return gradient_all<Activation::tanh, T>(stream, y, d_y, add, d_bias, scratch);
    case Activation::sigmoid:
      return gradient_all<Activation::sigmoid, T>(stream, y, d_y, add, d_bias, scratch);
  }
}

template <class T>
void squares_of(cudaStream_t stream, const Tensor& x, const Tensor& out, bool add, const Scratch& scratch) {
  constexpr int kWidth = kWideWidth<T>;
  const auto* const data = static_cast<const T*>(x.data);
  const unsigned blocks = blocks_of_sum(x.count() / kWidth);
  if (blocks > 1) need(blocks * sizeof(Sums), scratch);
  auto* const parts = static_cast<Sums*>(scratch.data);
  auto* const sum = static_cast<double*>(out.data);
  launch("sum_of_squares", square_parts<kWidth, T>,
         {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, data, x.count(),
         takes_packs<kWidth>(data), add, parts, sum);
  if (blocks == 1) return;
  launch("write_sum", write_sum, {.threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, parts, blocks, add,
         sum);
}

}  // namespace

std::size_t scratch_bytes(std::int64_t most_columns) noexcept {
  // A matrix has more than one part only if all parts together have at most kBlocks tiles of at most 32 packs.
  const std::size_t of_matrix = most_column_parts(most_columns) * sizeof(float);
  const std::size_t of_norm =
      static_cast<std::size_t>(2 * kNormParts * std::min(most_columns, kMaxLayerNormColumns)) * sizeof(float);
  return std::max({kMaxParts * sizeof(Sums), of_matrix, of_norm});
}

void activation_gradient(cudaStream_t stream, Activation activation, const Tensor& y, const Tensor& d_y,
                         Accumulate accumulate, const Tensor& d_bias, const Scratch& scratch) {
  const bool add = accumulate == Accumulate::yes;
  with_compute_type("activation_gradient", d_y,
                    [&]<class T>() { gradient_as<T>(stream, activation, y, d_y, add, d_bias, scratch); });
}

void sum_of_squares(cudaStream_t stream, const Tensor& x, const Tensor& out, Accumulate accumulate,
                    const Scratch& scratch) {
  const bool add = accumulate == Accumulate::yes;
  with_compute_type("sum_of_squares", x, [&]<class T>() { squares_of<T>(stream, x, out, add, scratch); });
}

}  // namespace lockstep::model::cuda
