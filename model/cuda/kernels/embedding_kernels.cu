#include <algorithm>

#include "model/cuda/kernels/element_kernels.cuh"
#include "model/cuda/kernels/embedding_kernels.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Number of rows that one block sorts.
constexpr int kSortedChunk = 1024;
static_assert(kSortedRows % kSortedChunk == 0);

/// Sort keys of rows: token in the upper half, row in the lower half.
struct SortKeys {
  std::uint64_t keys[kSortedChunk];
};
/// Rows in chunks of kSortedChunk; each chunk is sorted by (token, row).
struct SortedChunks {
  std::uint32_t* tokens;
  std::int32_t* rows;
};

/// Sorts one chunk per block: a bitonic sort (Batcher 1968) with half as many threads as rows.
__global__ void __launch_bounds__(kSortedChunk / 2)
    sort_chunks(const std::int32_t* tokens, int count, SortedChunks chunks) {
  auto& keys = shared<SortKeys>().keys;
  const int first = static_cast<int>(blockIdx.x) * kSortedChunk, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kSortedChunk; i += kSortedChunk / 2) {
    const int row = first + i;
    keys[i] = row < count ? std::uint64_t{static_cast<std::uint32_t>(tokens[row])} << 32 | static_cast<unsigned>(row)
                          : ~std::uint64_t{0};
  }
  for (int size = 2; size <= kSortedChunk; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int i = 2 * thread - (thread & (stride - 1));
      const std::uint64_t one = keys[i], other = keys[i + stride];
      if ((one > other) == ((i & size) == 0)) {
        keys[i] = other;
        keys[i + stride] = one;
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < kSortedChunk; i += kSortedChunk / 2) {
    if (first + i >= count) break;
    chunks.tokens[first + i] = static_cast<std::uint32_t>(keys[i] >> 32);
    chunks.rows[first + i] = static_cast<std::int32_t>(keys[i] & 0xffffffffu);
  }
}

/// Rows per block, one per lane. The warps of a block share the chunks to search.
constexpr unsigned kRowsToSort = kWarp;

struct SortCounts {
  std::int32_t before[kBlock], earlier[kBlock], equal[kBlock];
};

/// Returns how many of the `count` sorted tokens are smaller than `token`.
__device__ inline int count_below(const std::uint32_t* tokens, int count, std::uint32_t token) {
  int below = 0;
  while (count > 0) {
    const int half = count / 2;
    if (tokens[below + half] < token) {
      below += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return below;
}

/// sorted[position of row r] = r, for `count` rows.
__global__ void __launch_bounds__(kBlock) sort_rows(SortedChunks chunks, int count, SortedRow* sorted) {
  auto& counts = shared<SortCounts>();
  const int at = static_cast<int>(blockIdx.x * kRowsToSort + threadIdx.x % kWarp);
  const std::uint32_t own = at < count ? chunks.tokens[at] : 0;
  std::int32_t before = 0, earlier = 0, equal = 0;  // smaller tokens; equal ones in earlier rows; all equal ones
  for (int first = static_cast<int>(threadIdx.x / kWarp) * kSortedChunk; first < count;
       first += static_cast<int>(kBlock / kWarp) * kSortedChunk) {
    const std::uint32_t* const tokens = chunks.tokens + first;
    const int others = count - first < kSortedChunk ? count - first : kSortedChunk;
    const int below = count_below(tokens, others, own);
    int same = 0;
    if (below < others && tokens[below] == own) {
      const int rest = others - below;
      same = own == UINT32_MAX ? rest : count_below(tokens + below, rest, own + 1);
    }
    before += below;
    equal += same;
    if (at >= first) earlier += at < first + kSortedChunk ? at - first - below : same;
  }
  counts.before[threadIdx.x] = before;
  counts.earlier[threadIdx.x] = earlier;
  counts.equal[threadIdx.x] = equal;
  __syncthreads();
  if (threadIdx.x >= kWarp || at >= count) return;
  for (unsigned warp = 1; warp < kBlock / kWarp; ++warp) {
    before += counts.before[warp * kWarp + threadIdx.x];
    earlier += counts.earlier[warp * kWarp + threadIdx.x];
    equal += counts.equal[warp * kWarp + threadIdx.x];
  }
  sorted[before + earlier] = {chunks.rows[at], earlier == 0 ? equal : 0};
}

void sort(cudaStream_t stream, const std::int32_t* tokens, std::int64_t rows, const SortedChunks& chunks,
          SortedRow* sorted) {
  launch("sort_chunks", sort_chunks,
         {.blocks = static_cast<unsigned>((rows + kSortedChunk - 1) / kSortedChunk),
          .threads = kSortedChunk / 2,
          .shared_bytes = sizeof(SortKeys)},
         stream, tokens, rows, chunks);
  launch("sort_rows", sort_rows,
         {.blocks = static_cast<unsigned>((rows + kRowsToSort - 1) / kRowsToSort),
          .threads = kBlock,
          .shared_bytes = sizeof(SortCounts)},
         stream, chunks, rows, sorted);
}

template <int kWidth, class T>
void add_rows(cudaStream_t stream, const SortedRow* sorted, const std::int32_t* tokens, std::int64_t rows, const T* d_y,
              const Tensor& d_table) {
  constexpr std::int64_t kColumnsOfBlock = kWarp * kWidth;
  auto* const to = static_cast<float*>(d_table.data);
  launch("add_embedding_gradient", add_runs<kWidth, T>,
         {.blocks = static_cast<unsigned>((rows + kBlock / kWarp - 1) / (kBlock / kWarp)),
          .parts = static_cast<unsigned>((d_table.columns + kColumnsOfBlock - 1) / kColumnsOfBlock),
          .threads = kBlock,
          .shared_bytes = sizeof(RunWorkspace<kWidth>)},
         stream, sorted, rows, tokens, d_y, d_table.rows, d_table.columns, takes_packs<kWidth>(d_y),
         takes_packs<kWidth>(to), to);
}

}  // namespace

void embedding_forward(cudaStream_t stream, const Tensor& tokens, const Tensor& table, const Tensor& positions,
                       const Tensor& y, const Tensor& places) {
  if (y.count() == 0) return;
  constexpr std::int64_t kRowsOfBlock = kBlock / kWarp;
  const Grid grid{.blocks = static_cast<unsigned>(std::min((y.rows + kRowsOfBlock - 1) / kRowsOfBlock, kMaxBlocks)),
                  .threads = kBlock};
  with_compute_type("embedding_forward", y, [&]<class T>() {
    constexpr int kWidth = kWideWidth<T>;
    const LookUp<T> p{static_cast<const std::int32_t*>(tokens.data),
                      static_cast<const std::int32_t*>(places.data),
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
  if (scratch.bytes < kSortBytes) {
    throw std::invalid_argument("scratch for sorted rows has " + std::to_string(scratch.bytes) + " bytes, needed are " +
                                std::to_string(kSortBytes));
  }
  auto* const sorted = static_cast<SortedRow*>(scratch.data);
  auto* const numbers = reinterpret_cast<std::int32_t*>(sorted + kSortedRows);
  const SortedChunks chunks{reinterpret_cast<std::uint32_t*>(numbers), numbers + kSortedRows};
  with_compute_type("embedding_backward", d_y, [&]<class T>() {
    for (std::int64_t first = 0; first < d_y.rows; first += kSortedRows) {
      const std::int64_t rows = std::min(kSortedRows, d_y.rows - first);
      const auto* const own = static_cast<const std::int32_t*>(tokens.data) + first;
      const auto* const gradients = static_cast<const T*>(d_y.data) + first * d_y.columns;
      sort(stream, own, rows, chunks, sorted);
      if (d_y.columns % kWideWidth<T> == 0) {
        add_rows<kWideWidth<T>>(stream, sorted, own, rows, gradients, d_table);
      } else {
        add_rows<1>(stream, sorted, own, rows, gradients, d_table);
      }
    }
  });
}

}  // namespace lockstep::model::cuda
