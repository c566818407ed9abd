/// \file
/// Steps of one LSTM layer by blocks that stay (persistent_lstm.hpp), in bfloat16 on tensor cores with fp32 sums.
///
/// **Forward.** A block owns 16 hidden units. It keeps the 64 columns of recurrent that make their four gates, in
/// shared memory, and computes these columns of hidden[t] recurrent for all sequences, adds the sums that stand in
/// `gates`, and makes the units' gates, cells and outputs at once. The next step needs the outputs of all blocks.
///
/// **Backward.** d_hidden[t] += d_gates[t + 1] recurrent' has four times as many terms, and a block that read them all
/// would read 4 hidden numbers of each sequence. So four blocks share 64 units: each keeps the columns of one gate, so
/// it reads the gradients of that gate alone and computes a quarter of the terms of all 64 units. It leaves these sums
/// in device memory; the four meet, and each adds the quarters of 16 of the units, always in the order of the gates,
/// and makes the gradients of their gates. The next step needs the gradients of all blocks. So the product has the same
/// shape both ways: sequences x 64 columns x as many terms as there are units.
///
/// **Teams.** Sequences do not depend on each other. They come in tiles of 32, each with a meeting of its own. A block
/// has two teams of four warps, which take turns with the tiles: while one waits for other blocks, the other computes.
/// A warp of a team takes every fourth chunk of 32 terms, for all rows and columns of the tile, so that each weight is
/// read from shared memory once a tile and each number of the left side from L2 once. The sums of the four warps are
/// added in their order.
///
/// **Fragments.** Weights are the left side of the product on tensor cores and sequences the right one
/// (tensor_cores.cuh). A lane reads 8 neighbouring terms of a sequence at once, 16 bytes: they are its registers of two
/// products of 16 terms, and need no other place. They stand for the terms (2t, 2t + 1) and (2t + 8, 2t + 9) of each,
/// because a sum does not mind which of its terms is called which, as long as both sides agree. The weights lie in
/// shared memory as lanes need them: by chunk, by 16 columns, by product, by lane its 4 registers.
#pragma once

#include "model/cuda/grid_barrier.cuh"
#include "model/cuda/packs.cuh"
#include "model/cuda/tensor_cores.cuh"
#include "model/formulas/lstm.hpp"

namespace lockstep::model::cuda {

inline constexpr int kLstmUnits = 16;    ///< that a block finishes
inline constexpr int kLstmColumns = 64;  ///< of a block's product
inline constexpr int kLstmGates = 4;     ///< also the blocks that share 64 units backward
inline constexpr int kLstmRows = 32;     ///< sequences of a tile
inline constexpr int kLstmTerms = 32;    ///< of a chunk
inline constexpr int kLstmTeams = 2;     ///< of a block
inline constexpr int kLstmWarps = 4;     ///< of a team
inline constexpr int kLstmTeamThreads = kLstmWarps * static_cast<int>(kWarp);
inline constexpr unsigned kLstmThreads = kLstmTeams * kLstmTeamThreads;
/// Chunks that a warp has under way from L2.
inline constexpr int kLstmAhead = 3;
/// Packs of 16 bytes of a chunk's weights.
inline constexpr int kLstmChunkPacks = kLstmColumns / 16 * 2 * static_cast<int>(kWarp);

/// A warp's sums: [half of the sequences][8 sequences][16 columns][of the lane].
using LstmSums = float[2][kLstmRows / 16][kLstmColumns / 16][4];

/// Sums of a team's warps for half of a tile. Four columns more than used: what a warp stores together lies in
/// different banks.
struct LstmWarpSums {
  float at[kLstmWarps][kLstmRows / 2][kLstmColumns + 4];
};
/// In front of the weights, whose number depends on the layer.
struct LstmWorkspace {
  LstmWarpSums teams[kLstmTeams];
};
inline constexpr std::size_t lstm_shared_bytes(std::int64_t units) {
  return sizeof(LstmWorkspace) +
         static_cast<std::size_t>((units + kLstmTerms - 1) / kLstmTerms * kLstmChunkPacks) * sizeof(uint4);
}

struct LstmWindow {
  Bfloat16* gates;
  const Bfloat16* recurrent;
  Bfloat16 *cells, *hidden;
  int steps, sequences, units;
  unsigned* words;  ///< by tile
};
struct LstmWindowBack {
  Bfloat16* gates;
  const Bfloat16 *recurrent, *cells, *d_hidden;
  Bfloat16* d_cell;
  const Bfloat16* after;  ///< gradients of the gates of the step after these; null: there is none
  int steps, sequences, units;
  unsigned* words;  ///< by tile; and behind those by tile, then by 64 units
  float* sums;      ///< by 64 units, tile, gate: [32, 64]
};

/// Where a thread stands in its team: in products, and when it finishes half a tile: one row and two units of 16.
struct LstmThread {
  int team, warp, lane, group, member;
  int row, pair;
  bool leads;

  __device__ void meet() const { synchronize_team<kLstmTeamThreads>(1 + team); }
  /// For all blocks (of a phase) to have arrived at the word.
  __device__ void meet_at(const unsigned* word, int phase) const {
    if (leads) await(word, phase);
    meet();
  }
};
__device__ __forceinline__ LstmThread lstm_thread() {
  const int thread = static_cast<int>(threadIdx.x) % kLstmTeamThreads, lane = thread % static_cast<int>(kWarp);
  return {static_cast<int>(threadIdx.x) / kLstmTeamThreads,
          thread / static_cast<int>(kWarp),
          lane,
          lane / 4,
          lane % 4,
          thread / 8,
          thread % 8,
          thread == 0};
}

__device__ __forceinline__ uint4* lstm_weights() { return reinterpret_cast<uint4*>(&shared<LstmWorkspace>() + 1); }

__device__ __forceinline__ int rows_of_tile(int sequences, int tile) {
  const int rest = sequences - tile * kLstmRows;
  return rest < kLstmRows ? rest : kLstmRows;
}

/// Two neighbouring numbers as they are stored; zeros where they are not `there`.
__device__ __forceinline__ std::uint32_t load_two(const Bfloat16* from, bool there) {
  return there ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
}

/// What a step finds of two units of a sequence, which stands in row `row`: their gates, and their cells before it.
template <class Window>
__device__ __forceinline__ void load_units(const Window& lstm, std::int64_t row, int unit, bool there,
                                           std::uint32_t (&gates)[4], std::uint32_t& before) {
#pragma unroll
  for (int g = 0; g < 4; ++g) gates[g] = load_two(lstm.gates + (row * 4 + g) * lstm.units + unit, there);
  before = load_two(lstm.cells + row * lstm.units + unit, there);
}

/// Keeps eight terms of a column, of a chunk the ones from 8 * `member` on, where the lanes of products find them.
__device__ __forceinline__ void keep_terms(const std::uint32_t (&pairs)[4], int chunk, int column, int member,
                                           uint4* weights) {
  auto* const to =
      reinterpret_cast<std::uint32_t*>(weights + chunk * kLstmChunkPacks + column / 16 * 2 * static_cast<int>(kWarp) +
                                       column % 8 * 4 + member) +
      column / 8 % 2;
  to[0] = pairs[0];
  to[2] = pairs[1];
  to[4 * kWarp] = pairs[2];
  to[4 * kWarp + 2] = pairs[3];
}

/// Forward: column n of the block is unit n % 16 of gate n / 16. A thread turns eight rows of two units.
__device__ __forceinline__ void keep_columns(const LstmWindow& lstm, int first_unit, uint4* weights) {
  const int chunks = (lstm.units + kLstmTerms - 1) / kLstmTerms;
  const std::int64_t step = std::int64_t{kLstmGates} * lstm.units;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < chunks * 4 * kLstmGates * 8; i += static_cast<int>(kLstmThreads)) {
    const int unit = i % 8 * 2, gate = i / 8 % kLstmGates, member = i / (8 * kLstmGates) % 4;
    const int chunk = i / (8 * kLstmGates * 4), term = chunk * kLstmTerms + member * 8;
    const bool there = term < lstm.units && first_unit + unit < lstm.units;
    const Bfloat16* const from =
        lstm.recurrent + (there ? term * step + std::int64_t{gate} * lstm.units + first_unit + unit : 0);
    std::uint32_t rows[8], low[4], high[4];
#pragma unroll
    for (int k = 0; k < 8; ++k) rows[k] = load_two(from + k * step, there);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      low[k] = (rows[2 * k] & 0xffffu) | rows[2 * k + 1] << 16;
      high[k] = rows[2 * k] >> 16 | (rows[2 * k + 1] & 0xffff0000u);
    }
    keep_terms(low, chunk, gate * kLstmUnits + unit, member, weights);
    keep_terms(high, chunk, gate * kLstmUnits + unit + 1, member, weights);
  }
}

/// Backward: column n of the block is unit n of its 64, terms are the units of one gate.
__device__ __forceinline__ void keep_rows(const LstmWindowBack& lstm, int first_unit, int gate, uint4* weights) {
  const int chunks = (lstm.units + kLstmTerms - 1) / kLstmTerms;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < chunks * 4 * kLstmColumns; i += static_cast<int>(kLstmThreads)) {
    const int member = i % 4, column = i / 4 % kLstmColumns, chunk = i / (4 * kLstmColumns);
    const int unit = first_unit + column, term = chunk * kLstmTerms + member * 8;
    uint4 pack = {0, 0, 0, 0};
    if (unit < lstm.units && term < lstm.units) {
      pack = *reinterpret_cast<const uint4*>(lstm.recurrent + (std::int64_t{unit} * kLstmGates + gate) * lstm.units +
                                             term);
    }
    keep_terms({pack.x, pack.y, pack.z, pack.w}, chunk, column, member, weights);
  }
}

/// The eight terms of a lane of four sequences: its group's of each eight; zeros where there are none. `from`: of the
/// first one.
__device__ __forceinline__ void load_terms(const Bfloat16* from, std::int64_t step, int rows, bool there,
                                           uint4 (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i] = {0, 0, 0, 0};
    if (there && i * 8 < rows) to[i] = load_fresh(reinterpret_cast<const uint4*>(from + i * 8 * step));
  }
}

/// The warp's share of the terms of tile x weights. `tile`: the first of `rows` rows of `terms` terms.
__device__ __forceinline__ void multiply_tile(const LstmThread& thread, const Bfloat16* tile, std::int64_t step,
                                              int rows, int terms, const uint4* weights, LstmSums& sums) {
  const int chunks = (terms + kLstmTerms - 1) / kLstmTerms, rest = rows - thread.group;
  const Bfloat16* const from = tile + thread.group * step + thread.member * 8;
  const auto fetch = [&](int chunk, uint4(&to)[4]) {
    const int term = chunk * kLstmTerms;
    load_terms(from + term, step, rest, term + thread.member * 8 < terms, to);
  };
  uint4 ahead[kLstmAhead][4];
#pragma unroll
  for (int a = 0; a < kLstmAhead; ++a) fetch(thread.warp + a * kLstmWarps, ahead[a]);
#pragma unroll 1
  for (int first = thread.warp; first < chunks; first += kLstmAhead * kLstmWarps) {
#pragma unroll
    for (int a = 0; a < kLstmAhead; ++a) {
      const int chunk = first + a * kLstmWarps;
      if (chunk >= chunks) break;
      const uint4* const left = weights + chunk * kLstmChunkPacks + thread.lane;
#pragma unroll
      for (int m = 0; m < kLstmColumns / 16; ++m) {
#pragma unroll
        for (int product = 0; product < 2; ++product) {
          const uint4 pack = left[(m * 2 + product) * static_cast<int>(kWarp)];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const uint4& right = ahead[a][n];
            multiply_add({pack.x, pack.y, pack.z, pack.w}, product == 0 ? right.x : right.z,
                         product == 0 ? right.y : right.w, sums[n / 2][n % 2][m]);
          }
        }
      }
      fetch(chunk + kLstmAhead * kLstmWarps, ahead[a]);
    }
  }
}

/// The sums of half a tile over the team's warps, of the thread's row and columns 16 k + 2 pair and its neighbour.
__device__ __forceinline__ void add_warps(const LstmThread& thread,
                                          const float (&own)[kLstmRows / 16][kLstmColumns / 16][4], LstmWarpSums& all,
                                          float (&sums)[4][2]) {
#pragma unroll
  for (int n = 0; n < kLstmRows / 16; ++n) {
#pragma unroll
    for (int m = 0; m < kLstmColumns / 16; ++m) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        all.at[thread.warp][n * 8 + thread.member * 2 + c % 2][m * 16 + thread.group + c / 2 * 8] = own[n][m][c];
      }
    }
  }
  thread.meet();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    sums[k][0] = sums[k][1] = 0;
#pragma unroll
    for (int warp = 0; warp < kLstmWarps; ++warp) {
      const auto& pair = *reinterpret_cast<const float2*>(&all.at[warp][thread.row][k * 16 + thread.pair * 2]);
      sums[k][0] += pair.x;
      sums[k][1] += pair.y;
    }
  }
  thread.meet();
}

/// Grid: a block for each 16 units. Blocks are all resident.
__global__ void __launch_bounds__(kLstmThreads, 1) lstm_window(LstmWindow lstm) {
  uint4* const weights = lstm_weights();
  const int first_unit = static_cast<int>(blockIdx.x) * kLstmUnits;
  keep_columns(lstm, first_unit, weights);
  __syncthreads();

  const LstmThread thread = lstm_thread();
  LstmWarpSums& warps = shared<LstmWorkspace>().teams[thread.team];
  const int unit = first_unit + thread.pair * 2;
  const std::int64_t units = lstm.units;
  const int tiles = (lstm.sequences + kLstmRows - 1) / kLstmRows;
  const auto arrive_at = [&](int tile) {
    if (thread.leads) arrive(lstm.words + tile * kWordStride, gridDim.x, blockIdx.x == 0);
  };
#pragma unroll 1
  for (int step = 0; step < lstm.steps; ++step) {
#pragma unroll 1
    for (int tile = thread.team; tile < tiles; tile += kLstmTeams) {
      const int rows = rows_of_tile(lstm.sequences, tile);
      const std::int64_t first = std::int64_t{step} * lstm.sequences + tile * kLstmRows;
      // What no other block writes is read before the wait for them.
      std::uint32_t inputs[2][4], before[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = half * kLstmRows / 2 + thread.row;
        const bool there = row < rows && unit < lstm.units;
        load_units(lstm, first + row, unit, there, inputs[half], before[half]);
      }
      if (step > 0) thread.meet_at(lstm.words + tile * kWordStride, step - 1);
      LstmSums sums = {};
      multiply_tile(thread, lstm.hidden + first * units, units, rows, lstm.units, weights, sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float z[4][2];
        add_warps(thread, sums[half], warps, z);
        const int row = half * kLstmRows / 2 + thread.row;
        if (row >= rows || unit >= lstm.units) continue;
        float cell[2], out[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
          for (int g = 0; g < 4; ++g) z[g][k] += element_of(inputs[half][g], k);
          const formulas::LstmGates<float> active =
              formulas::lstm_activate<float>({z[0][k], z[1][k], z[2][k], z[3][k]});
          const formulas::LstmState<float> state = formulas::lstm_step(active, element_of(before[half], k));
          formulas::put_gates(active, k, z);
          cell[k] = state.cell;
          out[k] = state.hidden;
        }
        const std::int64_t after = first + lstm.sequences + row;
#pragma unroll
        for (int g = 0; g < 4; ++g) store<2>(z[g], true, lstm.gates + ((first + row) * 4 + g) * units + unit);
        store<2>(cell, true, lstm.cells + after * units + unit);
        store<2>(out, true, lstm.hidden + after * units + unit);
      }
      if (step + 1 == lstm.steps) continue;
      thread.meet();
      arrive_at(tile);
    }
  }
  if (lstm.steps % 2 == 0) {  // an odd number of phases: one more leaves the words 0
    for (int tile = thread.team; tile < tiles; tile += kLstmTeams) arrive_at(tile);
  }
}

/// Grid: four blocks for each 64 units, one for each gate. Blocks are all resident.
__global__ void __launch_bounds__(kLstmThreads, 1) lstm_window_back(LstmWindowBack lstm) {
  uint4* const weights = lstm_weights();
  const int shared_units = static_cast<int>(blockIdx.x) / kLstmGates, gate = static_cast<int>(blockIdx.x) % kLstmGates;
  keep_rows(lstm, shared_units * kLstmColumns, gate, weights);
  __syncthreads();

  const LstmThread thread = lstm_thread();
  LstmWarpSums& warps = shared<LstmWorkspace>().teams[thread.team];
  const int column = gate * kLstmUnits + thread.pair * 2, unit = shared_units * kLstmColumns + column;
  const std::int64_t units = lstm.units;
  const int tiles = (lstm.sequences + kLstmRows - 1) / kLstmRows, products = lstm.steps - (lstm.after == nullptr);
  const int shares = static_cast<int>(gridDim.x) / kLstmGates;
  const auto quarter_word = [&](int tile) { return lstm.words + (tiles + tile * shares + shared_units) * kWordStride; };
  const auto arrive_at = [&](int tile) {
    if (thread.leads) arrive(lstm.words + tile * kWordStride, gridDim.x, blockIdx.x == 0);
  };
  const auto arrive_at_quarters = [&](int tile) {
    if (thread.leads) arrive(quarter_word(tile), kLstmGates, gate == 0);
  };
#pragma unroll 1
  for (int behind = 0; behind < lstm.steps; ++behind) {
    const int step = lstm.steps - 1 - behind;
    const int product = behind - (lstm.after == nullptr);  // which one of the call; -1: this step has none
#pragma unroll 1
    for (int tile = thread.team; tile < tiles; tile += kLstmTeams) {
      const int rows = rows_of_tile(lstm.sequences, tile);
      const std::int64_t first = std::int64_t{step} * lstm.sequences + tile * kLstmRows;
      std::uint32_t active[2][4], before[2], cells[2], reaches[2], d_cell[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = half * kLstmRows / 2 + thread.row;
        const bool there = row < rows && unit < lstm.units;
        load_units(lstm, first + row, unit, there, active[half], before[half]);
        cells[half] = load_two(lstm.cells + (first + lstm.sequences + row) * units + unit, there);
        reaches[half] = load_two(lstm.d_hidden + (first + row) * units + unit, there);
        d_cell[half] =
            load_two(lstm.d_cell + (std::int64_t{tile} * kLstmRows + row) * units + unit, there && product >= 0);
      }
      float reached[2][2] = {};
      if (product >= 0) {
        if (behind > 0) thread.meet_at(lstm.words + tile * kWordStride, behind - 1);
        const Bfloat16* const after = behind > 0 ? lstm.gates + (first + lstm.sequences) * 4 * units
                                                 : lstm.after + std::int64_t{tile} * kLstmRows * 4 * units;
        LstmSums sums = {};
        multiply_tile(thread, after + gate * units, 4 * units, rows, lstm.units, weights, sums);
        float* const quarters =
            lstm.sums + (std::int64_t{shared_units} * tiles + tile) * kLstmGates * kLstmRows * kLstmColumns;
        const auto place = [&](int of_gate, int half, int of_column) {
          return quarters + ((of_gate * 2 + half) * kLstmRows / 2 + thread.row) * kLstmColumns + of_column;
        };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float share[4][2];
          add_warps(thread, sums[half], warps, share);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            *reinterpret_cast<float2*>(place(gate, half, k * 16 + thread.pair * 2)) = {share[k][0], share[k][1]};
          }
        }
        thread.meet();
        arrive_at_quarters(tile);
        thread.meet_at(quarter_word(tile), product);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int g = 0; g < 4; ++g) {
            const float2 quarter = load_fresh(reinterpret_cast<const float2*>(place(g, half, column)));
            reached[half][0] += quarter.x;
            reached[half][1] += quarter.y;
          }
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = half * kLstmRows / 2 + thread.row;
        if (row >= rows || unit >= lstm.units) continue;
        float z[4][2], d[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const formulas::LstmGradients<float> back = formulas::lstm_step_back<float>(
              {element_of(active[half][0], k), element_of(active[half][1], k), element_of(active[half][2], k),
               element_of(active[half][3], k)},
              element_of(before[half], k), element_of(cells[half], k), element_of(reaches[half], k) + reached[half][k],
              element_of(d_cell[half], k));
          formulas::put_gates(back.sums, k, z);
          d[k] = back.cell_before;
        }
#pragma unroll
        for (int g = 0; g < 4; ++g) store<2>(z[g], true, lstm.gates + ((first + row) * 4 + g) * units + unit);
        store<2>(d, true, lstm.d_cell + (std::int64_t{tile} * kLstmRows + row) * units + unit);
      }
      if (step == 0) continue;
      thread.meet();
      arrive_at(tile);
    }
  }
  // Where phases are odd in number, one more leaves the words 0.
  for (int tile = thread.team; tile < tiles; tile += kLstmTeams) {
    if (lstm.steps % 2 == 0) arrive_at(tile);
    if (products % 2 != 0) arrive_at_quarters(tile);
  }
}

}  // namespace lockstep::model::cuda
