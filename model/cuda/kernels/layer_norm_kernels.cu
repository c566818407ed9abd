#include <algorithm>

#include "model/cuda/kernels/column_sums.cuh"
#include "model/cuda/kernels/layer_norm_kernels.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/cuda/kernels/tiling.hpp"

namespace lockstep::model::cuda {

namespace {

/// Returns the blocks of a pass with one warp per row.
unsigned blocks_of_rows(std::int64_t rows) {
  constexpr std::int64_t kRowsOfBlock = kBlock / kWarp, kMaxRowBlocks = 4096;
  return static_cast<unsigned>(std::min((rows + kRowsOfBlock - 1) / kRowsOfBlock, kMaxRowBlocks));
}

/// Largest number of packs per lane for rows that are held in registers.
constexpr int kMaxPacks = 4;

/// Calls run<kPacks>() with the number of packs per lane, at most kMaxPacks.
template <int kWidth, class Run>
void with_packs(std::int64_t columns, const Run& run) {
  const std::int64_t packs = (columns / kWidth + kWarp - 1) / kWarp;
  if (packs <= 1) return run.template operator()<1>();
  if (packs <= 2) return run.template operator()<2>();
  if (packs <= 3) return run.template operator()<3>();
  run.template operator()<kMaxPacks>();
}

template <int kWidth, class T>
void forward(cudaStream_t stream, const NormForward<T>& p, std::int64_t rows, std::int64_t columns) {
  const bool wide = takes_packs<kWidth>(p.x) && takes_packs<kWidth>(p.residual) && takes_packs<kWidth>(p.scale) &&
                    takes_packs<kWidth>(p.shift) && takes_packs<kWidth>(p.sum) && takes_packs<kWidth>(p.y);
  if constexpr (kWidth > 1) {
    if (wide && columns <= kMaxPacks * static_cast<std::int64_t>(kWarp) * kWidth) {
      return with_packs<kWidth>(columns, [&]<int kPacks>() {
        launch("layer_norm_forward", normalize_rows_at_once<kWidth, kPacks, T>,
               {.blocks = blocks_of_rows(rows), .threads = kBlock}, stream, p, rows, columns);
      });
    }
  }
  launch("layer_norm_forward", normalize_rows<kWidth, T>, {.blocks = blocks_of_rows(rows), .threads = kBlock}, stream,
         p, rows, columns, wide);
}

template <int kWidth, class T>
void backward_at_once(cudaStream_t stream, const NormBackward<T>& p, std::int64_t rows, std::int64_t columns, bool add,
                      const SumTargets<2>& sums, const Scratch& scratch) {
  static_assert(kWidth * kWarp * kMaxPacks <= kMaxLayerNormColumns);
  constexpr std::int64_t kWarps = kBlock / kWarp;
  const std::int64_t blocks = std::clamp<std::int64_t>((rows + kWarps - 1) / kWarps, 1, kNormParts);
  const bool alone = blocks == 1;
  auto* const parts = static_cast<float*>(scratch.data);
  const auto run = [&]<int kPacks>() {
    launch("layer_norm_backward", normalize_rows_back_at_once<kWidth, kPacks, T>,
           {.blocks = static_cast<unsigned>(blocks),
            .threads = kBlock,
            .shared_bytes = sizeof(NormWorkspace<kWidth, kPacks, T>)},
           stream, p, rows, columns, alone && add, alone ? sums : SumTargets<2>{{parts, parts + columns}});
  };
  with_packs<kWidth>(columns, run);
  if (!alone) run_add_parts<2>(stream, scratch, static_cast<unsigned>(blocks), columns, add, sums);
}

template <int kWidth, class T>
void backward(cudaStream_t stream, const NormBackward<T>& p, std::int64_t rows, std::int64_t columns, bool add,
              const SumTargets<2>& sums, const Scratch& scratch) {
  const bool summed = sums.to[0] != nullptr || sums.to[1] != nullptr;
  const bool wide_sums = takes_packs<kWidth>(p.x) && takes_packs<kWidth>(p.d_y);
  const bool wide =
      wide_sums && takes_packs<kWidth>(p.scale) && takes_packs<kWidth>(p.d_residual) && takes_packs<kWidth>(p.d_x);
  if constexpr (kWidth > 1) {
    if (summed && wide && rows > 0 && rows <= INT32_MAX &&
        columns <= kMaxPacks * static_cast<std::int64_t>(kWarp) * kWidth) {
      return backward_at_once<kWidth>(stream, p, rows, columns, add, sums, scratch);
    }
  }
  const LayerNormColumns<T> terms{p.x, p.mean, p.inverse, p.d_y, columns, wide_sums};
  // Runs first, because d_x may overwrite d_y.
  if (summed) run_sum_columns<kWidth>("layer_norm_sums", stream, terms, rows, columns, add, sums, scratch);
  if (rows == 0) return;
  launch("layer_norm_backward", normalize_rows_back<kWidth, T>, {.blocks = blocks_of_rows(rows), .threads = kBlock},
         stream, p, rows, columns, wide);
}

}  // namespace

void layer_norm_forward(cudaStream_t stream, const LayerNormForwardOperands& operands) {
  const auto& [x, residual, scale, shift, sum, mean, inverse, y] = operands;
  if (x.count() == 0) return;
  with_compute_type("layer_norm_forward", x, [&]<class T>() {
    const NormForward<T> p{data_of<T>(x),   data_of<T>(residual), data_of<T>(scale),       data_of<T>(shift),
                           data_of<T>(sum), data_of<float>(mean), data_of<float>(inverse), data_of<T>(y)};
    if (x.columns % kWideWidth<T> == 0) {
      forward<kWideWidth<T>>(stream, p, x.rows, x.columns);
    } else {
      forward<1>(stream, p, x.rows, x.columns);
    }
  });
}

void layer_norm_backward(cudaStream_t stream, const LayerNormBackwardOperands& operands, Accumulate accumulate,
                         const Scratch& scratch) {
  const auto& [x, scale, mean, inverse, d_y, d_residual, d_scale, d_shift, d_x] = operands;
  const bool add = accumulate == Accumulate::yes;
  const SumTargets<2> sums{{data_of<float>(d_scale), data_of<float>(d_shift)}};
  with_compute_type("layer_norm_backward", x, [&]<class T>() {
    const NormBackward<T> p{data_of<T>(x),   data_of<T>(scale),      data_of<float>(mean), data_of<float>(inverse),
                            data_of<T>(d_y), data_of<T>(d_residual), data_of<T>(d_x)};
    if (x.columns % kWideWidth<T> == 0) {
      backward<kWideWidth<T>>(stream, p, x.rows, x.columns, add, sums, scratch);
    } else {
      backward<1>(stream, p, x.rows, x.columns, add, sums, scratch);
    }
  });
}

}  // namespace lockstep::model::cuda
