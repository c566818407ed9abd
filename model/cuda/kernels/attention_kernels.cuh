/// \file
/// Attention without a matrix of context x context, in plain fp32 arithmetic, for any head size up to kHead (Dao et
/// al., "FlashAttention", 2022; Rabe & Staats 2021). A block owns a tile of rows (queries, or keys in the pass for the
/// gradients of keys and values). It loads the tiles of the other side into shared memory in ascending order, and skips
/// tiles that the mask hides. For each row, forward keeps the greatest score so far, the sum of exponentials relative
/// to it, and the weighted sum of values, and rescales both sums when a greater score appears.
///
/// Backward recomputes the probabilities from the scores and their log sums. With probabilities P, dropout factors M
/// and the gradient d of the result: dV = (P M)' d; dS = P (M (d V') - delta), where delta is the dot product of each
/// row of d with the result; dQ = scale dS K; dK = scale dS' Q. The pass for dQ computes the deltas.
#pragma once

#include "model/cuda/kernels/attention_data.cuh"

namespace lockstep::model::cuda {

inline constexpr int kOwnRows = 16,
                     kOtherRows = 32;  ///< rows of a block's own tile, and of the other tiles
inline constexpr unsigned kPlainThreads = 128;
inline constexpr int kRowThreads = kPlainThreads / kOwnRows;  ///< threads that share a row, all in one warp

/// Rows of a tile in shared memory, with one unused column, so that the elements of a column lie in different banks.
template <int kRows, int kHead>
using Tile = float[kRows][kHead + 1];

template <int kHead>
struct ForwardWorkspace {
  Tile<kOwnRows, kHead> queries;
  Tile<kOtherRows, kHead> others;
  float weights[kOwnRows][kOtherRows + 1];
};
template <int kHead>
struct BackwardWorkspace {
  Tile<kOwnRows, kHead> own[2];
  Tile<kOtherRows, kHead> others;
  float weights[2][kOwnRows][kOtherRows + 1];
};

/// Loads kRows rows from `from` on; elements beyond `rows` or `head_size` are 0. Needs barriers before and after, since
/// other threads read the tile.
template <int kRows, int kHead, class T>
__device__ void load_tile(const T* from, std::int64_t row_step, int rows, int head_size, Tile<kRows, kHead>& tile) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kHead; i += kPlainThreads) {
    const int row = i / kHead, d = i % kHead;
    tile[row][d] = row < rows && d < head_size ? to_float(from[row * row_step + d]) : 0.0f;
  }
  __syncthreads();
}

/// Return sums or maxima over the threads of a row, with the same bits in each thread.
__device__ inline float sum_of_row(float value) {
#pragma unroll
  for (int distance = 1; distance < kRowThreads; distance *= 2) value += __shfl_xor_sync(kWholeWarp, value, distance);
  return value;
}
__device__ inline float greatest_of_row(float value) {
#pragma unroll
  for (int distance = 1; distance < kRowThreads; distance *= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

/// Rows of the other tile that a thread multiplies with its row: lane, lane + kRowThreads, ...
inline constexpr int kProducts = kOtherRows / kRowThreads;

template <int kHead>
__device__ void products_with(const float (&own)[kHead + 1], const Tile<kOtherRows, kHead>& others, int lane,
                              float (&products)[kProducts]) {
#pragma unroll
  for (int m = 0; m < kProducts; ++m) products[m] = 0;
  for (int d = 0; d < kHead; ++d) {
#pragma unroll
    for (int m = 0; m < kProducts; ++m) products[m] += own[d] * others[lane + m * kRowThreads][d];
  }
}

/// sums += weights others, for columns lane, lane + kRowThreads, ...
template <int kHead>
__device__ void add_weighted(const float (&weights)[kOtherRows + 1], const Tile<kOtherRows, kHead>& others, int lane,
                             float (&sums)[kHead / kRowThreads]) {
  for (int j = 0; j < kOtherRows; ++j) {
    const float weight = weights[j];
#pragma unroll
    for (int n = 0; n < kHead / kRowThreads; ++n) sums[n] += weight * others[j][lane + n * kRowThreads];
  }
}

template <int kHead, class T>
__device__ void store_row(const float (&sums)[kHead / kRowThreads], float factor, int lane, int head_size, T* to) {
#pragma unroll
  for (int n = 0; n < kHead / kRowThreads; ++n) {
    const float value[1] = {sums[n] * factor};
    if (lane + n * kRowThreads < head_size) store<1>(value, false, to + lane + n * kRowThreads);
  }
}

template <int kHead, class T>
__global__ void __launch_bounds__(kPlainThreads) plain_attention(AttentionData<T> data) {
  auto& workspace = shared<ForwardWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kOwnRows, TileOf::queries);
  const int row = static_cast<int>(threadIdx.x) / kRowThreads, lane = static_cast<int>(threadIdx.x) % kRowThreads;
  const int query = tile.first + row;
  const std::int64_t step = std::int64_t{3} * data.heads * data.head_size;
  const std::uint64_t key_of_sample = data.dropout_keys == nullptr ? 0 : data.dropout_keys[tile.sample];
  load_tile<kOwnRows, kHead>(data.joint + offset_of(data, tile, tile.first, 3, 0), step, data.context - tile.first,
                             data.head_size, workspace.queries);
  const KeyRange seen = keys_of(data, tile, query);
  float greatest = -INFINITY, total = 0;
  float sums[kHead / kRowThreads] = {};
  const int end = data.causal && tile.first + kOwnRows < data.context ? tile.first + kOwnRows : data.context;
  for (int first = 0; first < end; first += kOtherRows) {
    float scores[kProducts];
    load_tile<kOtherRows, kHead>(data.joint + offset_of(data, tile, first, 3, 1), step, data.context - first,
                                 data.head_size, workspace.others);
    products_with<kHead>(workspace.queries[row], workspace.others, lane, scores);
    float high = greatest;
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      const int key = first + lane + m * kRowThreads;
      scores[m] = seen.has(key) ? scores[m] * data.scale : -INFINITY;
      high = fmaxf(high, scores[m]);
    }
    high = greatest_of_row(high);
    const float base = high == -INFINITY ? 0 : high;  // no visible key so far
    const float shrink = expf(greatest - base);
    greatest = high;
    float sum = 0;
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      const float weight = expf(scores[m] - base);
      const int key = first + lane + m * kRowThreads;
      sum += weight;
      const float factor = data.dropout_keys == nullptr ? 1 : factor_of(data, tile, key_of_sample, query, key);
      workspace.weights[row][lane + m * kRowThreads] = weight * factor;
    }
    total = total * shrink + sum_of_row(sum);
#pragma unroll
    for (int n = 0; n < kHead / kRowThreads; ++n) sums[n] *= shrink;
    load_tile<kOtherRows, kHead>(data.joint + offset_of(data, tile, first, 3, 2), step, data.context - first,
                                 data.head_size, workspace.others);
    add_weighted<kHead>(workspace.weights[row], workspace.others, lane, sums);
  }
  if (query >= data.context) return;
  const bool sees_any = total > 0;
  store_row<kHead>(sums, sees_any ? 1 / total : 0, lane, data.head_size, data.y + offset_of(data, tile, query, 1, 0));
  if (lane == 0) {
    data.log_sums[static_cast<std::int64_t>(tile.pair) * data.context + query] = sees_any ? greatest + logf(total) : 0;
  }
}

/// Minimum blocks per multiprocessor with which plain_attention_queries() has enough registers; 0: no requirement.
template <int kHead, class T, bool kMasked>
inline constexpr int kQueriesBlocks = kMasked || (kHead == 128 && sizeof(T) < sizeof(float)) ? 1 : 0;

/// Computes the gradient of the queries, and the deltas. kMasked: with an AttentionMask, whose bounds need registers.
template <int kHead, class T, bool kMasked>
__global__ void __launch_bounds__(kPlainThreads, kQueriesBlocks<kHead, T, kMasked>)
    plain_attention_queries(AttentionData<T> data) {
  auto& workspace = shared<BackwardWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kOwnRows, TileOf::queries);
  const int row = static_cast<int>(threadIdx.x) / kRowThreads, lane = static_cast<int>(threadIdx.x) % kRowThreads;
  const int query = tile.first + row;
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * data.head_size, step = 3 * width;
  const std::uint64_t key_of_sample = data.dropout_keys == nullptr ? 0 : data.dropout_keys[tile.sample];
  load_tile<kOwnRows, kHead>(data.joint + offset_of(data, tile, tile.first, 3, 0), step, data.context - tile.first,
                             data.head_size, workspace.own[0]);
  load_tile<kOwnRows, kHead>(data.d_y + offset_of(data, tile, tile.first, 1, 0), width, data.context - tile.first,
                             data.head_size, workspace.own[1]);
  float delta = 0, log_sum = 0;
  if (query < data.context) {
    const T* const y = data.y_in + offset_of(data, tile, query, 1, 0);
    for (int d = lane; d < data.head_size; d += kRowThreads) delta += workspace.own[1][row][d] * to_float(y[d]);
    log_sum = data.log_sums[static_cast<std::int64_t>(tile.pair) * data.context + query];
  }
  delta = sum_of_row(delta);
  KeyRange seen{};
  if constexpr (kMasked) seen = keys_of(data, tile, query);
  float sums[kHead / kRowThreads] = {};
  const int end = data.causal && tile.first + kOwnRows < data.context ? tile.first + kOwnRows : data.context;
  for (int first = 0; first < end; first += kOtherRows) {
    const T* const keys = data.joint + offset_of(data, tile, first, 3, 1);
    float scores[kProducts], gradients[kProducts];
    load_tile<kOtherRows, kHead>(keys, step, data.context - first, data.head_size, workspace.others);
    products_with<kHead>(workspace.own[0][row], workspace.others, lane, scores);
    load_tile<kOtherRows, kHead>(keys + width, step, data.context - first, data.head_size, workspace.others);
    products_with<kHead>(workspace.own[1][row], workspace.others, lane, gradients);
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      const int key = first + lane + m * kRowThreads;
      bool meets = (key <= query || !data.causal) && key < data.context && query < data.context;
      if constexpr (kMasked) meets = seen.has(key);
      const float weight = meets ? expf(scores[m] * data.scale - log_sum) : 0.0f;
      const float factor = data.dropout_keys == nullptr ? 1 : factor_of(data, tile, key_of_sample, query, key);
      workspace.weights[0][row][lane + m * kRowThreads] = meets ? weight * (gradients[m] * factor - delta) : 0.0f;
    }
    load_tile<kOtherRows, kHead>(keys, step, data.context - first, data.head_size, workspace.others);
    add_weighted<kHead>(workspace.weights[0][row], workspace.others, lane, sums);
  }
  if (query >= data.context) return;
  store_row<kHead>(sums, data.scale, lane, data.head_size, data.d_joint + offset_of(data, tile, query, 3, 0));
  if (lane == 0) data.deltas[static_cast<std::int64_t>(tile.pair) * data.context + query] = delta;
}

/// Computes the gradients of keys and values: rows are keys, the other side has queries. Runs after
/// plain_attention_queries().
template <int kHead, class T>
__global__ void __launch_bounds__(kPlainThreads) plain_attention_keys(AttentionData<T> data) {
  auto& workspace = shared<BackwardWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kOwnRows, TileOf::keys);
  const int row = static_cast<int>(threadIdx.x) / kRowThreads, lane = static_cast<int>(threadIdx.x) % kRowThreads;
  const int key = tile.first + row;
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * data.head_size, step = 3 * width;
  const std::uint64_t key_of_sample = data.dropout_keys == nullptr ? 0 : data.dropout_keys[tile.sample];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    load_tile<kOwnRows, kHead>(data.joint + offset_of(data, tile, tile.first, 3, part + 1), step,
                               data.context - tile.first, data.head_size, workspace.own[part]);
  }
  float d_key[kHead / kRowThreads] = {}, d_value[kHead / kRowThreads] = {};
  for (int first = data.causal ? tile.first / kOtherRows * kOtherRows : 0; first < data.context; first += kOtherRows) {
    const T* const queries = data.joint + offset_of(data, tile, first, 3, 0);
    float scores[kProducts], gradients[kProducts];
    load_tile<kOtherRows, kHead>(queries, step, data.context - first, data.head_size, workspace.others);
    products_with<kHead>(workspace.own[0][row], workspace.others, lane, scores);
    load_tile<kOtherRows, kHead>(data.d_y + offset_of(data, tile, first, 1, 0), width, data.context - first,
                                 data.head_size, workspace.others);
    products_with<kHead>(workspace.own[1][row], workspace.others, lane, gradients);
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      const int query = first + lane + m * kRowThreads;
      float weight = 0, gradient = 0, factor = 1;
      if (keys_of(data, tile, query).has(key)) {
        const std::int64_t at = static_cast<std::int64_t>(tile.pair) * data.context + query;
        if (data.dropout_keys != nullptr) factor = factor_of(data, tile, key_of_sample, query, key);
        weight = expf(scores[m] * data.scale - data.log_sums[at]);
        gradient = weight * (gradients[m] * factor - data.deltas[at]);
      }
      workspace.weights[0][row][lane + m * kRowThreads] = weight * factor;
      workspace.weights[1][row][lane + m * kRowThreads] = gradient;
    }
    __syncwarp();
    add_weighted<kHead>(workspace.weights[0][row], workspace.others, lane, d_value);
    load_tile<kOtherRows, kHead>(queries, step, data.context - first, data.head_size, workspace.others);
    add_weighted<kHead>(workspace.weights[1][row], workspace.others, lane, d_key);
  }
  if (key >= data.context) return;
  store_row<kHead>(d_key, data.scale, lane, data.head_size, data.d_joint + offset_of(data, tile, key, 3, 1));
  store_row<kHead>(d_value, 1, lane, data.head_size, data.d_joint + offset_of(data, tile, key, 3, 2));
}

}  // namespace lockstep::model::cuda
