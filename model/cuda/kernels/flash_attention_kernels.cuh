/// \file
/// Attention on tensor cores, after Dao, "FlashAttention-2" (2023); attention_kernels.cuh has the formulas. Each of a
/// block's four warps computes 16 rows of the block's tile and keeps their products in registers from the scores to the
/// result. The tiles of the other side are loaded into shared memory; the next one is loaded while the current one is
/// used. Probabilities and their gradients are rounded to bfloat16 when they become the left side of a product;
/// everything else is fp32. Exponentials are powers of 2.
///
/// kDrops: with dropout. kDocuments: with AttentionMask::places. The first key that a query sees is then that of its
/// document, and never lies before that of an earlier query. So tiles before the first key of a tile's first query are
/// skipped.
#pragma once

#include "model/cuda/kernels/attention_data.cuh"
#include "model/cuda/kernels/tensor_cores.cuh"

namespace lockstep::model::cuda {

inline constexpr int kFlashRows = 64;  ///< rows of a block's own tile
inline constexpr unsigned kFlashThreads = 128;
inline constexpr float kLog2OfE = 1.44269504088896340736f;

using FlashData = AttentionData<Bfloat16>;

/// Rows of the tiles of the other side; shared memory holds two such tiles.
template <int kHead>
inline constexpr int kFlashKeys = kHead == 64 ? 64 : 32;
template <int kHead>
inline constexpr int kFlashQueries = kHead == 64 ? 32 : 16;

/// Minimum blocks per multiprocessor without dropout and documents, which limits registers; 0: no requirement.
template <int kHead, bool kDrops, bool kDocuments>
inline constexpr int kFlashBlocks = kDrops || kDocuments ? 0 : 5 - kHead / 64;

template <int kHead>
struct KeysWorkspace {
  CoreTile<kFlashKeys<kHead>, kHead> keys[2], values[2];
};
template <int kHead>
struct QueriesWorkspace {
  CoreTile<kFlashRows, kHead> values;
  CoreTile<kFlashQueries<kHead>, kHead> queries[2], gradients[2];
  float log_sums[2][kFlashQueries<kHead>], deltas[2][kFlashQueries<kHead>];  ///< log_sums to base 2
  int first_keys[2][kFlashQueries<kHead>];                                   ///< with documents
};

/// Rows and columns of the results of a thread.
struct FlashThread {
  int warp, group, tile;
};
__device__ __forceinline__ FlashThread flash_thread() {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  return {static_cast<int>(threadIdx.x / kWarp), lane / 4, lane % 4};
}

/// Return sums and maxima over the four threads of a row, with the same bits in each thread.
__device__ __forceinline__ float sum_of_four(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  return value + __shfl_xor_sync(kWholeWarp, value, 2);
}
__device__ __forceinline__ float greatest_of_four(float value) {
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 2));
}

/// Returns 2^x by one instruction, with an error up to 2 units in the last place. Results below the smallest normal
/// float are 0.
__device__ __forceinline__ float power_of_2(float x) {
#if defined(__CUDACC__)
  float power = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

/// Returns the sum of the products of two pairs of elements.
__device__ __forceinline__ float product_of_pairs(std::uint32_t a, std::uint32_t b) {
  return element_of(a, 0) * element_of(b, 0) + element_of(a, 1) * element_of(b, 1);
}

/// Returns the first key of a query's document; with documents. Queries after the end see no key.
__device__ __forceinline__ int first_key_of(const FlashData& data, const AttentionTile& tile, int query) {
  if (query >= data.context) return data.context;
  return query - data.places[static_cast<std::int64_t>(tile.sample) * data.context + query];
}

/// Dropout factors of one query and the keys `key` and `key` + 1; usually one draw.
struct FactorPair {
  float first, second;
};
__device__ __forceinline__ FactorPair factors_of_keys(const FlashData& data, const AttentionTile& tile,
                                                      std::uint64_t key_of_sample, int query, int key) {
  const auto context = static_cast<unsigned>(data.context);
  const std::uint64_t row = static_cast<std::uint64_t>(tile.head) * context + static_cast<unsigned>(query);
  const std::uint64_t index = row * context + static_cast<unsigned>(key);
  const PhiloxWords words = formulas::dropout_words(data.dropout, key_of_sample, index / 4);
  const auto which = static_cast<unsigned>(index % 4);
  const std::uint32_t first = which == 0   ? words.word[0]
                              : which == 1 ? words.word[1]
                              : which == 2 ? words.word[2]
                                           : words.word[3];
  std::uint32_t second = which == 0 ? words.word[1] : which == 1 ? words.word[2] : words.word[3];
  if (which == 3) second = formulas::dropout_words(data.dropout, key_of_sample, index / 4 + 1).word[0];
  return {formulas::dropout_factor(data.dropout, first), formulas::dropout_factor(data.dropout, second)};
}

/// products += rows times 16 transposed rows of the tile, from `first` on.
template <int kRows, int kHead>
__device__ __forceinline__ void multiply_rows(const std::uint32_t (&left)[kHead / 16][4],
                                              const CoreTile<kRows, kHead>& tile, int first, float (&products)[2][4]) {
#pragma unroll
  for (int s = 0; s < kHead / 16; ++s) {
    std::uint32_t right[4];
    load_right(tile, first, s * 16, right);
    multiply_add(left[s], right[0], right[1], products[0]);
    multiply_add(left[s], right[2], right[3], products[1]);
  }
}

/// sums += left times 16 rows of the tile, from `first` on.
template <int kRows, int kHead>
__device__ __forceinline__ void add_rows(const std::uint32_t (&left)[4], const CoreTile<kRows, kHead>& tile, int first,
                                         float (&sums)[kHead / 8][4]) {
#pragma unroll
  for (int n = 0; n < kHead / 16; ++n) {
    std::uint32_t right[4];
    load_right_transposed(tile, first, n * 16, right);
    multiply_add(left, right[0], right[1], sums[2 * n]);
    multiply_add(left, right[2], right[3], sums[2 * n + 1]);
  }
}

/// Converts two neighbouring outputs of products to the left side of the next product.
__device__ __forceinline__ void left_of(const float (&outs)[2][4], std::uint32_t (&left)[4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    left[2 * n] = pair_of(outs[n][0], outs[n][1]);
    left[2 * n + 1] = pair_of(outs[n][2], outs[n][3]);
  }
}

/// Writes half of a warp's rows of results, times `factor`. Half 0 has rows 0 to 7, half 1 rows 8 to 15.
template <int kHead>
__device__ __forceinline__ void store_half(const float (&sums)[kHead / 8][4], int half, float factor, int tile,
                                           Bfloat16* row) {
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
    const float values[2] = {sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor};
    store<2>(values, true, row + n * 8 + tile * 2);
  }
}

/// Starts to copy the tile of keys and of values from position `first` on.
template <int kHead>
__device__ __forceinline__ void copy_keys(const FlashData& data, const AttentionTile& tile, int first, int stage,
                                          KeysWorkspace<kHead>& workspace) {
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * kHead;
  const Bfloat16* const keys = data.joint + offset_of(data, tile, first, 3, 1);
  copy_tile<kFlashThreads>(keys, 3 * width, data.context - first, workspace.keys[stage]);
  copy_tile<kFlashThreads>(keys + width, 3 * width, data.context - first, workspace.values[stage]);
}

template <int kHead, bool kDrops, bool kDocuments>
__global__ void __launch_bounds__(kFlashThreads, kFlashBlocks<kHead, kDrops, kDocuments>)
    flash_attention(FlashData data) {
  constexpr int kKeys = kFlashKeys<kHead>;
  auto& workspace = shared<KeysWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kFlashRows, TileOf::queries);
  const FlashThread thread = flash_thread();
  const int first_row = tile.first + thread.warp * 16;
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * kHead;
  const std::uint64_t key_of_sample = kDrops ? data.dropout_keys[tile.sample] : 0;
  const int end = tile.first + kFlashRows < data.context ? tile.first + kFlashRows : data.context;
  int begin = 0, first_of_warp = 0, first_keys[2] = {};  // first keys of the block, the warp, and the thread's rows
  if constexpr (kDocuments) {
    begin = first_key_of(data, tile, tile.first) / kKeys * kKeys;
    first_of_warp = first_key_of(data, tile, first_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      first_keys[half] = first_key_of(data, tile, first_row + thread.group + half * 8);
    }
  }
  copy_keys(data, tile, begin, 0, workspace);
  end_group();
  std::uint32_t queries[kHead / 16][4];
  load_rows<kHead>(data.joint + offset_of(data, tile, first_row, 3, 0), 3 * width, data.context - first_row, queries);
  const float scale = data.scale * kLog2OfE;
  float sums[kHead / 8][4] = {};
  float greatest[2] = {-INFINITY, -INFINITY}, totals[2] = {};  // rows group and group + 8; totals: of this thread
  for (int first = begin, stage = 0; first < end; first += kKeys, stage ^= 1) {
    if (first + kKeys < end) copy_keys(data, tile, first + kKeys, stage ^ 1, workspace);
    end_group();
    wait_groups<1>();
    __syncthreads();
    if (first <= first_row + 15 && first + kKeys > first_of_warp) {  // else the whole tile is hidden from this warp
      float scores[kKeys / 8][4] = {};
#pragma unroll
      for (int s = 0; s < kHead / 16; ++s) {
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
          std::uint32_t right[4];
          load_right(workspace.keys[stage], n * 16, s * 16, right);
          multiply_add(queries[s], right[0], right[1], scores[2 * n]);
          multiply_add(queries[s], right[2], right[3], scores[2 * n + 1]);
        }
      }
      if (first + kKeys - 1 > first_row) {  // the diagonal crosses this tile
        const int ahead = first + thread.tile * 2 - first_row - thread.group;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (ahead + n * 8 + c % 2 > c / 2 * 8) scores[n][c] = -INFINITY;
          }
        }
      }
      if constexpr (kDocuments) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (first + n * 8 + thread.tile * 2 + c % 2 < first_keys[c / 2]) scores[n][c] = -INFINITY;
          }
        }
      }
      float high[2] = {greatest[0], greatest[1]}, base[2];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) high[c / 2] = fmaxf(high[c / 2], scores[n][c]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        high[half] = greatest_of_four(high[half]);
        base[half] = kDocuments && high[half] == -INFINITY ? 0 : high[half] * scale;  // no visible key so far
        const float shrink = power_of_2(greatest[half] * scale - base[half]);
        greatest[half] = high[half];
        totals[half] *= shrink;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          sums[n][2 * half] *= shrink;
          sums[n][2 * half + 1] *= shrink;
        }
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          scores[n][c] = power_of_2(fmaf(scores[n][c], scale, -base[c / 2]));
          totals[c / 2] += scores[n][c];
        }
        if constexpr (kDrops) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const FactorPair factors = factors_of_keys(data, tile, key_of_sample, first_row + thread.group + half * 8,
                                                       first + n * 8 + thread.tile * 2);
            scores[n][2 * half] *= factors.first;
            scores[n][2 * half + 1] *= factors.second;
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        std::uint32_t left[4];
        const float outs[2][4] = {
            {scores[2 * k][0], scores[2 * k][1], scores[2 * k][2], scores[2 * k][3]},
            {scores[2 * k + 1][0], scores[2 * k + 1][1], scores[2 * k + 1][2], scores[2 * k + 1][3]}};
        left_of(outs, left);
        add_rows(left, workspace.values[stage], k * 16, sums);
      }
    }
    __syncthreads();  // all threads have read the stage
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = sum_of_four(totals[half]);
    const int query = first_row + thread.group + half * 8;
    if (query >= data.context) continue;
    store_half<kHead>(sums, half, 1 / total, thread.tile, data.y + offset_of(data, tile, query, 1, 0));
    if (thread.tile == 0) {
      data.log_sums[static_cast<std::int64_t>(tile.pair) * data.context + query] =
          greatest[half] * data.scale + logf(total);
    }
  }
}

/// Computes the gradient of the queries, and the deltas. 16 keys at a time.
template <int kHead, bool kDrops, bool kDocuments>
__global__ void __launch_bounds__(kFlashThreads, kFlashBlocks<kHead, kDrops, kDocuments>)
    flash_attention_queries(FlashData data) {
  constexpr int kKeys = kFlashKeys<kHead>;
  auto& workspace = shared<KeysWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kFlashRows, TileOf::queries);
  const FlashThread thread = flash_thread();
  const int first_row = tile.first + thread.warp * 16, rows = data.context - first_row;
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * kHead;
  const std::uint64_t key_of_sample = kDrops ? data.dropout_keys[tile.sample] : 0;
  const int end = tile.first + kFlashRows < data.context ? tile.first + kFlashRows : data.context;
  int begin = 0, first_of_warp = 0, first_keys[2] = {};  // first keys of the block, the warp, and the thread's rows
  if constexpr (kDocuments) {
    begin = first_key_of(data, tile, tile.first) / kKeys * kKeys;
    first_of_warp = first_key_of(data, tile, first_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      first_keys[half] = first_key_of(data, tile, first_row + thread.group + half * 8);
    }
  }
  copy_keys(data, tile, begin, 0, workspace);
  end_group();
  std::uint32_t queries[kHead / 16][4], gradients[kHead / 16][4];
  load_rows<kHead>(data.joint + offset_of(data, tile, first_row, 3, 0), 3 * width, rows, queries);
  load_rows<kHead>(data.d_y + offset_of(data, tile, first_row, 1, 0), width, rows, gradients);
  float deltas[2] = {}, log_sums[2] = {INFINITY, INFINITY};
  {
    std::uint32_t results[kHead / 16][4];
    load_rows<kHead>(data.y_in + offset_of(data, tile, first_row, 1, 0), width, rows, results);
#pragma unroll
    for (int s = 0; s < kHead / 16; ++s) {
#pragma unroll
      for (int k = 0; k < 4; ++k) deltas[k % 2] += product_of_pairs(gradients[s][k], results[s][k]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    deltas[half] = sum_of_four(deltas[half]);
    const int query = first_row + thread.group + half * 8;
    if (query >= data.context) continue;
    const std::int64_t at = static_cast<std::int64_t>(tile.pair) * data.context + query;
    log_sums[half] = data.log_sums[at] * kLog2OfE;
    if (thread.tile == 0) data.deltas[at] = deltas[half];
  }
  const float scale = data.scale * kLog2OfE;
  float sums[kHead / 8][4] = {};
  for (int first = begin, stage = 0; first < end; first += kKeys, stage ^= 1) {
    if (first + kKeys < end) copy_keys(data, tile, first + kKeys, stage ^ 1, workspace);
    end_group();
    wait_groups<1>();
    __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < kKeys && first + chunk <= first_row + 15; chunk += 16) {
      if (kDocuments && first + chunk + 16 <= first_of_warp) continue;
      float scores[2][4] = {}, products[2][4] = {};
      multiply_rows(queries, workspace.keys[stage], chunk, scores);
      multiply_rows(gradients, workspace.values[stage], chunk, products);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = first_row + thread.group + half * 8, key = first + chunk + n * 8 + thread.tile * 2;
          FactorPair factors{1, 1};
          if constexpr (kDrops) factors = factors_of_keys(data, tile, key_of_sample, query, key);
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int i = 2 * half + c;
            const float weight = power_of_2(fmaf(scores[n][i], scale, -log_sums[half]));
            const float factor = c == 0 ? factors.first : factors.second;
            scores[n][i] = weight * (products[n][i] * factor - deltas[half]);
          }
        }
      }
      if (first + chunk + 15 > first_row) {  // the diagonal crosses these keys
        const int ahead = first + chunk + thread.tile * 2 - first_row - thread.group;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (ahead + n * 8 + i % 2 > i / 2 * 8) scores[n][i] = 0;
          }
        }
      }
      if constexpr (kDocuments) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (first + chunk + n * 8 + thread.tile * 2 + i % 2 < first_keys[i / 2]) scores[n][i] = 0;
          }
        }
      }
      std::uint32_t left[4];
      left_of(scores, left);
      add_rows(left, workspace.keys[stage], chunk, sums);
    }
    __syncthreads();  // all threads have read the stage
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first_row + thread.group + half * 8;
    if (query >= data.context) continue;
    store_half<kHead>(sums, half, data.scale, thread.tile, data.d_joint + offset_of(data, tile, query, 3, 0));
  }
}

/// Starts to copy the tile of queries and of the gradients of their results, from position `first` on.
template <bool kDocuments, int kHead>
__device__ __forceinline__ void copy_queries(const FlashData& data, const AttentionTile& tile, int first, int stage,
                                             QueriesWorkspace<kHead>& workspace) {
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * kHead;
  copy_tile<kFlashThreads>(data.joint + offset_of(data, tile, first, 3, 0), 3 * width, data.context - first,
                           workspace.queries[stage]);
  copy_tile<kFlashThreads>(data.d_y + offset_of(data, tile, first, 1, 0), width, data.context - first,
                           workspace.gradients[stage]);
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= kFlashQueries<kHead>) return;
  const std::int64_t at = static_cast<std::int64_t>(tile.pair) * data.context + first + i;
  const bool there = first + i < data.context;
  workspace.log_sums[stage][i] = there ? data.log_sums[at] * kLog2OfE : INFINITY;
  workspace.deltas[stage][i] = there ? data.deltas[at] : 0.0f;
  if constexpr (kDocuments) workspace.first_keys[stage][i] = first_key_of(data, tile, first + i);
}

/// Computes the gradients of keys and values: rows are keys, columns queries, 16 at a time. Runs after
/// flash_attention_queries().
template <int kHead, bool kDrops, bool kDocuments>
__global__ void __launch_bounds__(kFlashThreads) flash_attention_keys(FlashData data) {
  constexpr int kQueries = kFlashQueries<kHead>;
  auto& workspace = shared<QueriesWorkspace<kHead>>();
  const AttentionTile tile = tile_of_block(data, kFlashRows, TileOf::keys);
  const FlashThread thread = flash_thread();
  const int first_row = tile.first + thread.warp * 16;
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * kHead;
  const std::uint64_t key_of_sample = kDrops ? data.dropout_keys[tile.sample] : 0;
  copy_tile<kFlashThreads>(data.joint + offset_of(data, tile, tile.first, 3, 2), 3 * width, data.context - tile.first,
                           workspace.values);
  copy_queries<kDocuments>(data, tile, tile.first, 0, workspace);
  end_group();
  std::uint32_t keys[kHead / 16][4];
  load_rows<kHead>(data.joint + offset_of(data, tile, first_row, 3, 1), 3 * width, data.context - first_row, keys);
  const float scale = data.scale * kLog2OfE;
  float d_keys[kHead / 8][4] = {}, d_values[kHead / 8][4] = {};
  for (int first = tile.first, stage = 0; first < data.context; first += kQueries, stage ^= 1) {
    if (first + kQueries < data.context) copy_queries<kDocuments>(data, tile, first + kQueries, stage ^ 1, workspace);
    end_group();
    wait_groups<1>();
    __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < kQueries; chunk += 16) {
      if (first + chunk + 15 < first_row) continue;  // the mask hides these queries from all keys of this warp
      if (kDocuments && workspace.first_keys[stage][chunk] > first_row + 15) continue;
      // Draws first, while no results occupy registers, and keeps one bit per draw.
      unsigned kept = 0;
      if constexpr (kDrops) {
        [[maybe_unused]] constexpr int kTogether = kHead == 64 ? 8 : 1;  // as registers allow
#pragma unroll kTogether
        for (int i = 0; i < 8; ++i) {
          const int query = first + chunk + i / 4 * 8 + thread.tile * 2 + i % 2;
          const int key = first_row + thread.group + i / 2 % 2 * 8;
          kept |= factor_of(data, tile, key_of_sample, query, key) > 0 ? 1u << i : 0u;
        }
      }
      float weights[2][4] = {}, products[2][4] = {};
      multiply_rows(keys, workspace.queries[stage], chunk, weights);
#pragma unroll
      for (int s = 0; s < kHead / 16; ++s) {
        std::uint32_t left[4], right[4];
        load_left(workspace.values, thread.warp * 16, s * 16, left);
        load_right(workspace.gradients[stage], chunk, s * 16, right);
        multiply_add(left, right[0], right[1], products[0]);
        multiply_add(left, right[2], right[3], products[1]);
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int column = chunk + n * 8 + thread.tile * 2 + c % 2;
          const float weight = power_of_2(fmaf(weights[n][c], scale, -workspace.log_sums[stage][column]));
          float factor = 1;
          if constexpr (kDrops) factor = (kept >> (4 * n + c) & 1u) != 0 ? data.dropout.factor : 0.0f;
          products[n][c] = weight * (products[n][c] * factor - workspace.deltas[stage][column]);
          weights[n][c] = weight * factor;
        }
      }
      if (first + chunk < first_row + 15) {  // the diagonal crosses these queries
        const int behind = first_row + thread.group - first - chunk - thread.tile * 2;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (behind + c / 2 * 8 > n * 8 + c % 2) weights[n][c] = products[n][c] = 0;
          }
        }
      }
      if constexpr (kDocuments) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const int first_key = workspace.first_keys[stage][chunk + n * 8 + thread.tile * 2 + c % 2];
            if (first_row + thread.group + c / 2 * 8 < first_key) weights[n][c] = products[n][c] = 0;
          }
        }
      }
      std::uint32_t left[4];
      left_of(weights, left);
      add_rows(left, workspace.gradients[stage], chunk, d_values);
      left_of(products, left);
      add_rows(left, workspace.queries[stage], chunk, d_keys);
    }
    __syncthreads();  // all threads have read the stage
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first_row + thread.group + half * 8;
    if (key >= data.context) continue;
    store_half<kHead>(d_keys, half, data.scale, thread.tile, data.d_joint + offset_of(data, tile, key, 3, 1));
    store_half<kHead>(d_values, half, 1, thread.tile, data.d_joint + offset_of(data, tile, key, 3, 2));
  }
}

}  // namespace lockstep::model::cuda
