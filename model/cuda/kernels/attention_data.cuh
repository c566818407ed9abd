/// \file
/// Common parts of all attention kernels: layout of queries, keys and values, assignment of blocks, and dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/formulas/dropout.hpp"

namespace lockstep::model::cuda {

/// Bytes of keys and values that stay in the L2 cache (40 MB on an A100, 50 on an H100) beside streamed data. Each
/// block of a pair (a sample and a head) reads the keys and values of the pair.
inline constexpr std::int64_t kKeysTogether = std::int64_t{16} << 20;
inline int pairs_together(const Attention& shape, std::size_t element_bytes) {
  const std::int64_t of_pair = 2 * shape.context * shape.head_size * static_cast<std::int64_t>(element_bytes);
  return static_cast<int>(std::clamp<std::int64_t>(kKeysTogether / of_pair, 1, std::numeric_limits<int>::max()));
}

/// Pair and tile of a block; each pair has `tiles` tiles. `together` pairs run at a time: first all their first tiles,
/// then all their second tiles, and so on.
struct AttentionOrder {
  int pairs, tiles, together;

  struct Place {
    int pair, tile;
  };
  LOCKSTEP_HOST_DEVICE Place at(int block) const {
    const int group = block / tiles / together, within = block - group * together * tiles;
    const int left = pairs - group * together, pairs_of_group = left < together ? left : together;
    return {group * together + within % pairs_of_group, within / pairs_of_group};
  }
};

/// Tensors of a call. dropout_keys: null without dropout. Tensors that only backward uses are null in forward.
template <class T>
struct AttentionData {
  const T* joint;
  const std::uint64_t* dropout_keys;
  const T* y_in;  ///< backward: the result of forward
  const T* d_y;
  T* y;  ///< forward: the result
  T* d_joint;
  float *log_sums, *deltas;
  const std::int32_t *places, *lengths;  ///< AttentionMask, or null
  int context, heads, head_size, pairs;  ///< pairs: number of (sample, head)
  int together;                          ///< pairs whose blocks are consecutive
  bool causal;
  float scale;  ///< factor of the products of queries and keys
  formulas::DropoutNumbers dropout;
};

/// d_y and d_joint are absent in forward.
template <class T>
AttentionData<T> attention_data(const Attention& shape, const AttentionBackwardOperands& operands,
                                const Tensor& deltas) {
  const auto& [joint, dropout_keys, mask, y, log_sums, d_y, d_joint] = operands;
  AttentionData<T> data{};
  data.joint = static_cast<const T*>(joint.data);
  if (shape.dropout.rate > 0) data.dropout_keys = static_cast<const std::uint64_t*>(dropout_keys.data);
  data.y = static_cast<T*>(y.data);
  data.y_in = data.y;
  data.d_y = static_cast<const T*>(d_y.data);
  data.d_joint = static_cast<T*>(d_joint.data);
  data.log_sums = static_cast<float*>(log_sums.data);
  data.deltas = static_cast<float*>(deltas.data);
  data.places = static_cast<const std::int32_t*>(mask.places.data);
  data.lengths = static_cast<const std::int32_t*>(mask.lengths.data);
  data.context = static_cast<int>(shape.context);
  data.heads = static_cast<int>(shape.heads);
  data.head_size = static_cast<int>(shape.head_size);
  data.pairs = static_cast<int>(joint.rows / shape.context * shape.heads);
  data.together = pairs_together(shape, sizeof(T));
  data.causal = shape.causal;
  data.scale = 1 / std::sqrt(static_cast<float>(shape.head_size));
  data.dropout = formulas::dropout_numbers(shape.dropout);
  return data;
}

/// A tile of `rows` positions of one sample and one head.
struct AttentionTile {
  int sample, head, pair, first;
};

/// Keys [first, end) that a query of the tile's sample sees.
struct KeyRange {
  int first, end;
  __device__ bool has(int key) const { return key >= first && key < end; }
};
template <class T>
__device__ KeyRange keys_of(const AttentionData<T>& data, const AttentionTile& at, int query) {
  if (query >= data.context) return {0, 0};
  KeyRange keys{0, data.causal ? query + 1 : data.context};
  if (data.places != nullptr)
    keys.first = query - data.places[static_cast<std::int64_t>(at.sample) * data.context + query];
  if (data.lengths != nullptr && data.lengths[at.sample] < keys.end) keys.end = data.lengths[at.sample];
  return keys;
}

/// Returns the number of blocks: one per tile of each pair.
template <class T>
unsigned blocks_of_tiles(const AttentionData<T>& data, int rows) {
  return static_cast<unsigned>((data.context + rows - 1) / rows) * static_cast<unsigned>(data.pairs);
}

enum class TileOf { queries, keys };

/// Returns the tile of this block. With the causal mask, late queries and early keys have the most work, so their
/// blocks come first among the pairs that run together.
template <class T>
__device__ AttentionTile tile_of_block(const AttentionData<T>& data, int rows, TileOf of) {
  const int tiles = (data.context + rows - 1) / rows;
  const auto [pair, order] = AttentionOrder{data.pairs, tiles, data.together}.at(static_cast<int>(blockIdx.x));
  const int tile = of == TileOf::queries ? tiles - 1 - order : order;
  return {pair / data.heads, pair % data.heads, pair, tile * rows};
}

/// Returns the offset of part `part` in row `position` of the tile's sample, in elements from the start of a tensor
/// [rows, parts * heads * head_size].
template <class T>
__device__ std::int64_t offset_of(const AttentionData<T>& data, const AttentionTile& at, int position, int parts,
                                  int part) {
  const std::int64_t width = static_cast<std::int64_t>(data.heads) * data.head_size;
  const std::int64_t row = static_cast<std::int64_t>(at.sample) * data.context + position;
  return row * parts * width + part * width + static_cast<std::int64_t>(at.head) * data.head_size;
}

/// Returns the dropout factor of the probability of (query, key).
template <class T>
__device__ float factor_of(const AttentionData<T>& data, const AttentionTile& at, std::uint64_t key_of_sample,
                           int query, int key) {
  const std::uint64_t row =
      static_cast<std::uint64_t>(at.head) * static_cast<unsigned>(data.context) + static_cast<unsigned>(query);
  return formulas::dropout_element(data.dropout, key_of_sample,
                                   row * static_cast<unsigned>(data.context) + static_cast<unsigned>(key));
}

}  // namespace lockstep::model::cuda
