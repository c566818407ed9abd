/// \file
/// Operations of a warp on tensor cores with bfloat16, and the copies for them. In a build as plain C++, each function
/// has a twin that follows the definition lane by lane, so that tests without a GPU check the positions of elements in
/// fragments.
///
/// In a product of [16, 16] and [16, 8], lane l has group g = l / 4 and member t = l % 4 (PTX ISA, mma.m16n8k16):
///   left, rows x terms:  a0 (g, 2t..2t+1)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)
///   right, terms x columns:  b0 (2t..2t+1, g)  b1 (2t + 8.., g)
///   out, rows x columns, float:  c0, c1 (g, 2t..2t+1)  c2, c3 (g + 8, 2t..)
/// A register of left and right holds two elements, the first in its lower half. Two neighbouring outputs have the
/// layout of the left side of the next product.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"

namespace lockstep::model::cuda {

/// Returns two elements in one register, rounded to nearest even.
__device__ __forceinline__ std::uint32_t pair_of(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits = 0;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

/// Returns element 0 or 1 of a pair as float; exact.
__device__ __forceinline__ float element_of(std::uint32_t pair, int which) {
  pair = which == 0 ? pair << 16 : pair & 0xffff0000u;
  float value = 0;
  memcpy(&value, &pair, sizeof value);
  return value;
}

#if defined(__CUDACC__)

/// out += left right.
__device__ __forceinline__ void multiply_add(const std::uint32_t (&left)[4], std::uint32_t right0, std::uint32_t right1,
                                             float (&out)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

/// Loads four [8, 8] matrices from shared memory. Lane l passes the address of row l % 8 of matrix l / 8, a multiple of
/// 16 bytes, and gets elements (g, 2t..2t+1) of each matrix.
__device__ __forceinline__ void load_matrices(const Bfloat16* row, std::uint32_t (&to)[4]) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// The same, but the lane gets elements (2t..2t+1, g).
__device__ __forceinline__ void load_transposed(const Bfloat16* row, std::uint32_t (&to)[4]) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Starts to copy 16 bytes to shared memory, or zeros unless `there`. Both addresses must be multiples of 16.
__device__ __forceinline__ void copy_async(const Bfloat16* from, bool there, Bfloat16* to) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
/// Ends the group of all copies that were started since the last call.
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all groups of this thread but the last kPending.
template <int kPending>
__device__ __forceinline__ void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#else

/// Twins for lockstep's tests: see cuda_on_cpu in tests/support. Lanes exchange values through a table of their warp.
namespace twins {

struct Copy {
  const Bfloat16* from;
  Bfloat16* to;
  int group;
};
struct Thread {
  std::uint32_t left[4], right[2];
  const Bfloat16* row;
  Copy copies[256];
  int count = 0, group = 0;
};
inline Thread threads[1024];

inline Thread& self() { return threads[threadIdx.x]; }
inline const Thread& lane(unsigned of) { return threads[threadIdx.x / kWarp * kWarp + of]; }

inline std::uint32_t join(const Bfloat16& first, const Bfloat16& second) {
  std::uint16_t low = 0, high = 0;
  std::memcpy(&low, &first, sizeof low);
  std::memcpy(&high, &second, sizeof high);
  return static_cast<std::uint32_t>(high) << 16 | low;
}

}  // namespace twins

inline void multiply_add(const std::uint32_t (&left)[4], std::uint32_t right0, std::uint32_t right1, float (&out)[4]) {
  std::memcpy(twins::self().left, left, sizeof left);
  twins::self().right[0] = right0;
  twins::self().right[1] = right1;
  __syncwarp();
  for (int c = 0; c < 4; ++c) {
    const unsigned row = threadIdx.x % kWarp / 4, column = threadIdx.x % 4 * 2 + static_cast<unsigned>(c % 2);
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned member = k % 8 / 2;
      const std::uint32_t a = twins::lane(row * 4 + member).left[k / 8 * 2 + static_cast<unsigned>(c / 2)];
      const std::uint32_t b = twins::lane(column * 4 + member).right[k / 8];
      sum += element_of(a, static_cast<int>(k % 2)) * element_of(b, static_cast<int>(k % 2));
    }
    out[c] += sum;
  }
  __syncwarp();
}

inline void load_matrices(const Bfloat16* row, std::uint32_t (&to)[4]) {
  twins::self().row = row;
  __syncwarp();
  const unsigned group = threadIdx.x % kWarp / 4, member = threadIdx.x % 4;
  for (unsigned m = 0; m < 4; ++m) {
    const Bfloat16* const from = twins::lane(m * 8 + group).row + 2 * member;
    to[m] = twins::join(from[0], from[1]);
  }
  __syncwarp();
}

inline void load_transposed(const Bfloat16* row, std::uint32_t (&to)[4]) {
  twins::self().row = row;
  __syncwarp();
  const unsigned group = threadIdx.x % kWarp / 4, member = threadIdx.x % 4;
  for (unsigned m = 0; m < 4; ++m) {
    to[m] = twins::join(twins::lane(m * 8 + 2 * member).row[group], twins::lane(m * 8 + 2 * member + 1).row[group]);
  }
  __syncwarp();
}

/// Fills the destination with NaN until the wait, when the data arrive, as late as allowed.
inline void copy_async(const Bfloat16* from, bool there, Bfloat16* to) {
  twins::Thread& own = twins::self();
  if (own.count == 256) throw std::length_error("too many copies under way");
  own.copies[own.count++] = {there ? from : nullptr, to, own.group};
  std::memset(static_cast<void*>(to), 0xff, 16);
}
inline void end_group() { ++twins::self().group; }
template <int kPending>
void wait_groups() {
  twins::Thread& own = twins::self();
  int left = 0;
  for (int i = 0; i < own.count; ++i) {
    const twins::Copy copy = own.copies[i];
    if (copy.group >= own.group - kPending) {
      own.copies[left++] = copy;
    } else if (copy.from == nullptr) {
      std::memset(static_cast<void*>(copy.to), 0, 16);
    } else {
      std::memcpy(static_cast<void*>(copy.to), copy.from, 16);
    }
  }
  own.count = left;
}

#endif

/// A tile of kRows rows of kColumns elements in shared memory, with eight unused columns, so that the rows of an [8, 8]
/// matrix lie in different banks.
template <int kRows, int kColumns>
struct alignas(16) CoreTile {
  Bfloat16 at[kRows][kColumns + 8];
};

/// Starts to copy a tile with kThreads threads: row r from `from` + r * step; zeros from row `rows` on.
template <int kThreads, int kRows, int kColumns>
__device__ __forceinline__ void copy_tile(const Bfloat16* from, std::int64_t step, int rows,
                                          CoreTile<kRows, kColumns>& tile) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll 1  // registers are scarcer than a few instructions
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * 8;
    const bool there = row < rows;
    copy_async(from + (there ? row * step + column : 0), there, &tile.at[row][column]);
  }
}

/// Loads the right side of two products from a tile of columns x terms: registers 0 and 1 for the columns from `column`
/// on, 2 and 3 for those from `column` + 8 on.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_right(const CoreTile<kRows, kColumns>& tile, int column, int term,
                                           std::uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  load_matrices(&tile.at[column + lane % 8 + lane / 16 * 8][term + lane / 8 % 2 * 8], to);
}

/// The same from a tile of terms x columns.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_right_transposed(const CoreTile<kRows, kColumns>& tile, int term, int column,
                                                      std::uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  load_transposed(&tile.at[term + lane % 16][column + lane / 16 * 8], to);
}

/// Loads the left side from a tile of rows x terms.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_left(const CoreTile<kRows, kColumns>& tile, int row, int term,
                                          std::uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  load_matrices(&tile.at[row + lane % 16][term + lane / 16 * 8], to);
}

/// Loads the left sides of a warp's 16 rows from global memory, for kTerms terms: row r at `from` + r * step; zeros
/// from row `rows` on. `from` must be a multiple of 4 bytes.
template <int kTerms>
__device__ __forceinline__ void load_rows(const Bfloat16* from, std::int64_t step, int rows,
                                          std::uint32_t (&to)[kTerms / 16][4]) {
  const int group = static_cast<int>(threadIdx.x % kWarp) / 4, member = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int s = 0; s < kTerms / 16; ++s) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int row = group + k % 2 * 8;
      to[s][k] = 0;
      if (row < rows) {
        memcpy(&to[s][k], __builtin_assume_aligned(from + row * step + s * 16 + k / 2 * 8 + member * 2, 4), 4);
      }
    }
  }
}

}  // namespace lockstep::model::cuda
