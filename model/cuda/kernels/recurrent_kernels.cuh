/// \file
/// All steps of a narrow recurrent layer in one kernel, with bfloat16. A block computes all steps of eight sequences.
/// Sequences are independent, so blocks never wait for each other. The recurrent weights stay in registers. Each step
/// has one barrier between the warps of a block, which exchange the state through shared memory.
///
/// A warp owns 16 units with all their gates. The product of a step is weights [16 units, terms] times states [terms, 8
/// sequences]. Row g of a product is unit 2g of the warp, and row g + 8 is unit 2g + 1 (tensor_cores.cuh defines g and
/// t). The terms of a thread in two consecutive products are eight neighbours. So a thread holds the sums of two
/// neighbouring units for sequences 2t and 2t + 1, reads states for two products with one access of 16 bytes, and
/// computes the gates of its units from sums in its own registers.
#pragma once

#include <cstdint>
#include <cstring>

#include "model/cuda/kernels/tensor_cores.cuh"
#include "model/formulas/gru.hpp"
#include "model/formulas/lstm.hpp"

namespace lockstep::model::cuda {

/// Sequences of a block, and units of a warp.
inline constexpr int kLayerSequences = 8, kWarpUnits = 16;

/// Functions of gates with an error of about 2 units in the last place of float, far below the precision of bfloat16.
struct QuickFunctions {
  static __device__ __forceinline__ float sigmoid(float v) { return reciprocal(1.0f + exponential(-v)); }
  static __device__ __forceinline__ float tanh(float v) {
    return 1.0f - 2.0f * reciprocal(1.0f + exponential(2.0f * v));
  }

 private:
#if defined(__CUDACC__)
  static __device__ __forceinline__ float exponential(float v) {
    float out = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(1.44269504f * v));
    return out;
  }
  static __device__ __forceinline__ float reciprocal(float v) {
    float out = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
    return out;
  }
#else
  static float exponential(float v) { return std::exp(v); }
  static float reciprocal(float v) { return 1.0f / v; }
#endif
};

/// Reads two neighbours in one access; the index of the first is even.
__device__ __forceinline__ std::uint32_t read_pair(const Bfloat16* from) {
  expect_aligned<Pack<Bfloat16, 2>>(from);
  return *reinterpret_cast<const std::uint32_t*>(from);
}
__device__ __forceinline__ void write_pair(std::uint32_t pair, Bfloat16* to) {
  expect_aligned<Pack<Bfloat16, 2>>(to);
  *reinterpret_cast<std::uint32_t*>(to) = pair;
}

/// Two units of each of two sequences: [sequence][unit].
struct UnitValues {
  float at[2][2] = {};
};

/// A thread owns units `unit` and `unit` + 1 of sequences `sequence` and `sequence` + 1.
struct OwnUnits {
  int units, sequences;  ///< extents of the layer
  int unit, sequence;
  bool there[2];  ///< by sequence: it exists
};

/// Pairs of one gate at one step that a thread owns, as in memory.
struct UnitPairs {
  std::uint32_t at[2] = {0, 0};

  __device__ UnitValues values() const {
    UnitValues values;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int k = 0; k < 2; ++k) values.at[q][k] = element_of(at[q], k);
    }
    return values;
  }
};

/// Iterates over steps of a thread's pairs in a tensor whose rows have kParts parts of `units` units. For units or
/// sequences that do not exist, it points to valid memory but reads zeros.
template <int kParts>
class UnitWalk {
 public:
  __device__ UnitWalk(const Bfloat16* data, const OwnUnits& own, int step)
      : units_(own.units), step_(static_cast<std::int64_t>(own.sequences) * kParts * own.units) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      there_[q] = own.there[q];
      const std::int64_t row = there_[q] ? own.sequence + q : 0;
      // The const_cast is safe: store() is only called for tensors that a pass may write.
      at_[q] = const_cast<Bfloat16*>(data) + step * step_ + row * kParts * own.units + (there_[q] ? own.unit : 0);
    }
  }

  __device__ void advance(int steps) {
#pragma unroll
    for (int q = 0; q < 2; ++q) at_[q] += steps * step_;
  }
  /// Reads part `part`, `steps` steps ahead.
  __device__ UnitPairs load(int part, int steps = 0) const {
    UnitPairs pairs;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const std::uint32_t pair = read_pair(at_[q] + steps * step_ + part * units_);
      pairs.at[q] = there_[q] ? pair : 0;
    }
    return pairs;
  }
  /// Writes the rounded values and returns them; zeros for units or sequences that do not exist.
  __device__ UnitPairs store(const UnitValues& values, int part, int steps = 0) const {
    UnitPairs pairs;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const std::uint32_t pair = pair_of(values.at[q][0], values.at[q][1]);
      pairs.at[q] = there_[q] ? pair : 0;
      if (there_[q]) write_pair(pair, at_[q] + steps * step_ + part * units_);
    }
    return pairs;
  }

 private:
  Bfloat16* at_[2];
  bool there_[2];
  int units_;
  std::int64_t step_;
};

/// The right factor of a step's product. There are two, so that a step writes one while slower warps still read the
/// other. Rows are sequences, with eight unused columns, so that rows lie in different banks.
template <int kTerms>
struct alignas(16) LayerStates {
  Bfloat16 at[2][kLayerSequences][kTerms + 8];

  /// Writes the pairs of a thread as terms from `term` on.
  __device__ void put(int which, int sequence, int term, const UnitPairs& pairs) {
#pragma unroll
    for (int q = 0; q < 2; ++q) write_pair(pairs.at[q], &at[which][sequence + q][term]);
  }
};

/// The left factor of a warp, kParts parts of kTerms terms each. It stays in registers.
template <int kParts, int kTerms>
struct LayerWeights {
  std::uint32_t at[kParts][kTerms / 16][4];

  /// sums[part] += product of the part with the terms of the states from `first_term` + part * stride on.
  __device__ void multiply(const Bfloat16* row_of_states, float (&sums)[kParts][2][4], int stride) const {
    const int member = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int p = 0; p < kTerms / 32; ++p) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint4 states = *reinterpret_cast<const uint4*>(row_of_states + part * stride + 32 * p + 8 * member);
        multiply_add(at[part][2 * p], states.x, states.y, sums[part][0]);
        multiply_add(at[part][2 * p + 1], states.z, states.w, sums[part][1]);
      }
    }
  }
};

/// Returns the values of a product whose even and odd steps of 16 terms have separate sums.
__device__ __forceinline__ UnitValues values_of(const float (&sums)[2][4]) {
  return {{{sums[0][0] + sums[1][0], sums[0][2] + sums[1][2]}, {sums[0][1] + sums[1][1], sums[0][3] + sums[1][3]}}};
}

/// Returns the first of a thread's terms in step `tile` of 16 terms, for one half of its registers; see the comment of
/// the file.
__device__ __forceinline__ int term_of(int tile, int half) {
  return tile / 2 * 32 + static_cast<int>(threadIdx.x % 4) * 8 + tile % 2 * 4 + half * 2;
}

/// Weights of the forward product: terms are units of the previous state, rows are units of each gate. recurrent:
/// [units, kGates * units].
template <int kGates, int kTerms>
__device__ __forceinline__ void load_forward(const Bfloat16* recurrent, const OwnUnits& own,
                                             LayerWeights<kGates, kTerms>& weights) {
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
    for (int tile = 0; tile < kTerms / 16; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t rows[2] = {0, 0};  // pairs of terms of two units
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int term = term_of(tile, half) + k;
          if (term < own.units && own.unit < own.units) {
            const Bfloat16* const from =
                recurrent + (static_cast<std::int64_t>(term) * kGates + gate) * own.units + own.unit;
            rows[k] = read_pair(from);
          }
        }
        weights.at[gate][tile][2 * half] = (rows[0] & 0xffffu) | rows[1] << 16;
        weights.at[gate][tile][2 * half + 1] = rows[0] >> 16 | (rows[1] & 0xffff0000u);
      }
    }
  }
}

/// Weights of the backward product: terms are units of each gate, rows are units of the previous state.
template <int kGates, int kTerms>
__device__ __forceinline__ void load_backward(const Bfloat16* recurrent, const OwnUnits& own,
                                              LayerWeights<kGates, kTerms>& weights) {
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
    for (int tile = 0; tile < kTerms / 16; ++tile) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int unit = own.unit + k % 2, term = term_of(tile, k / 2);
        std::uint32_t& to = weights.at[gate][tile][k];
        to = 0;
        if (unit < own.units && term < own.units) {
          const Bfloat16* const from = recurrent + (static_cast<std::int64_t>(unit) * kGates + gate) * own.units + term;
          to = read_pair(from);
        }
      }
    }
  }
}

/// Tensors that a pass over a layer writes, and its extents. hidden and cells: from after the first step on. Null if
/// not used; also below.
struct LayerResults {
  Bfloat16 *gates, *products, *hidden, *cells, *d_cell;
  int steps, sequences, units;
};
/// All tensors of a layer. Kernels receive tensors that they only read as separate pointers to const, because layers on
/// other streams may read the same tensors.
struct LayerData {
  const Bfloat16 *gates, *products, *hidden, *cells, *d_cell, *recurrent, *bias, *d_hidden, *gates_after;
  int steps, sequences, units;
};

/// Classes like this one hold what differs between cells: the computation of a thread's own units. `fetch` starts the
/// loads of a step, and `take` receives them. `forward` receives the products of a step and returns the state after it.
/// `backward` receives the gradient of the state from the next step, and returns the operand of the product with the
/// weights.
class GruForward {
 public:
  static constexpr int kGates = 3;

  __device__ GruForward(const LayerData& data, const OwnUnits& own)
      : gates_(data.gates, own, 0), products_(data.products, own, 0), hidden_(data.hidden, own, 0) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const std::uint32_t pair = own.unit < own.units ? read_pair(data.bias + g * own.units + own.unit) : 0;
      bias_[g][0] = element_of(pair, 0);
      bias_[g][1] = element_of(pair, 1);
    }
  }

  __device__ UnitPairs begin() {
    const UnitPairs first = hidden_.load(0);
    state_ = first.values();
    return first;
  }
  __device__ void fetch(int steps) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) fetched_[g] = gates_.load(g, steps);
  }
  __device__ void take() {
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_[g] = fetched_[g].values();
  }
  __device__ UnitPairs forward(const float (&sums)[kGates][2][4]) {
    UnitValues p[kGates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      p[g] = values_of(sums[g]);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
#pragma unroll
        for (int k = 0; k < 2; ++k) p[g].at[q][k] += bias_[g][k];
      }
    }
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const formulas::GruGates<float> active = formulas::gru_activate<float, QuickFunctions>(
            {inputs_[0].at[q][k], inputs_[1].at[q][k], inputs_[2].at[q][k]},
            {p[0].at[q][k], p[1].at[q][k], p[2].at[q][k]});
        inputs_[0].at[q][k] = active.reset;
        inputs_[1].at[q][k] = active.update;
        inputs_[2].at[q][k] = active.candidate;
        state_.at[q][k] = formulas::gru_step(active, state_.at[q][k]);
      }
    }
    const UnitPairs state = hidden_.store(state_, 0, 1);
#pragma unroll
    for (int g = 0; g < kGates; ++g) gates_.store(inputs_[g], g);
    products_.store(p[2], 2);
    state_ = state.values();
    gates_.advance(1);
    products_.advance(1);
    hidden_.advance(1);
    return state;
  }

 private:
  UnitWalk<kGates> gates_, products_;
  UnitWalk<1> hidden_;
  float bias_[kGates][2];
  UnitPairs fetched_[kGates];
  UnitValues inputs_[kGates], state_;
};

class GruBackward {
 public:
  static constexpr int kGates = 3;

  __device__ GruBackward(const LayerData& data, const OwnUnits& own)
      : gates_(data.gates, own, data.steps - 1),
        products_(data.products, own, data.steps - 1),
        hidden_(data.hidden, own, data.steps - 1),
        d_hidden_(data.d_hidden, own, data.steps - 1) {}

  __device__ void begin(UnitPairs (&)[kGates]) {}
  __device__ void fetch(int steps) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) fetched_[g] = gates_.load(g, steps);
    fetched_product_ = products_.load(2, steps);
    fetched_before_ = hidden_.load(0, steps);
    fetched_above_ = d_hidden_.load(0, steps);
  }
  __device__ void take() {
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_[g] = fetched_[g].values();
    product_ = fetched_product_.values();
    before_ = fetched_before_.values();
    above_ = fetched_above_.values();
  }
  __device__ void backward(const UnitValues& from_next, UnitPairs (&to_product)[kGates]) {
    UnitValues products[kGates];
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float d = above_.at[q][k] + from_next.at[q][k] + passed_.at[q][k];
        const formulas::GruGradients<float> back = formulas::gru_step_back<float>(
            {inputs_[0].at[q][k], inputs_[1].at[q][k], inputs_[2].at[q][k]}, product_.at[q][k], before_.at[q][k], d);
        inputs_[0].at[q][k] = back.inputs.reset;
        inputs_[1].at[q][k] = back.inputs.update;
        inputs_[2].at[q][k] = back.inputs.candidate;
        products[0].at[q][k] = back.products.reset;
        products[1].at[q][k] = back.products.update;
        products[2].at[q][k] = back.products.candidate;
        passed_.at[q][k] = back.before;
      }
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      to_product[g] = products_.store(products[g], g);
      gates_.store(inputs_[g], g);
    }
    gates_.advance(-1);
    products_.advance(-1);
    hidden_.advance(-1);
    d_hidden_.advance(-1);
  }
  __device__ void end() {}

 private:
  UnitWalk<kGates> gates_, products_;
  UnitWalk<1> hidden_, d_hidden_;
  UnitPairs fetched_[kGates], fetched_product_, fetched_before_, fetched_above_;
  UnitValues inputs_[kGates], product_, before_, above_;
  UnitValues passed_;  ///< gradient of the previous state without the part through the products
};

class LstmForward {
 public:
  static constexpr int kGates = 4;

  __device__ LstmForward(const LayerData& data, const OwnUnits& own)
      : gates_(data.gates, own, 0), cells_(data.cells, own, 0), hidden_(data.hidden, own, 0) {}

  __device__ UnitPairs begin() {
    cell_ = cells_.load(0).values();
    return hidden_.load(0);
  }
  __device__ void fetch(int steps) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) fetched_[g] = gates_.load(g, steps);
  }
  __device__ void take() {
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_[g] = fetched_[g].values();
  }
  __device__ UnitPairs forward(const float (&sums)[kGates][2][4]) {
    UnitValues p[kGates], hidden;
#pragma unroll
    for (int g = 0; g < kGates; ++g) p[g] = values_of(sums[g]);
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const formulas::LstmGates<float> active = formulas::lstm_activate<float, QuickFunctions>(
            {inputs_[0].at[q][k] + p[0].at[q][k], inputs_[1].at[q][k] + p[1].at[q][k],
             inputs_[2].at[q][k] + p[2].at[q][k], inputs_[3].at[q][k] + p[3].at[q][k]});
        const formulas::LstmState<float> state = formulas::lstm_step<float, QuickFunctions>(active, cell_.at[q][k]);
        inputs_[0].at[q][k] = active.input;
        inputs_[1].at[q][k] = active.forget;
        inputs_[2].at[q][k] = active.cell;
        inputs_[3].at[q][k] = active.output;
        cell_.at[q][k] = state.cell;
        hidden.at[q][k] = state.hidden;
      }
    }
    const UnitPairs state = hidden_.store(hidden, 0, 1);
    cell_ = cells_.store(cell_, 0, 1).values();
#pragma unroll
    for (int g = 0; g < kGates; ++g) gates_.store(inputs_[g], g);
    gates_.advance(1);
    cells_.advance(1);
    hidden_.advance(1);
    return state;
  }

 private:
  UnitWalk<kGates> gates_;
  UnitWalk<1> cells_, hidden_;
  UnitPairs fetched_[kGates];
  UnitValues inputs_[kGates], cell_;
};

class LstmBackward {
 public:
  static constexpr int kGates = 4;

  __device__ LstmBackward(const LayerData& data, const OwnUnits& own)
      : data_(data),
        own_(own),
        gates_(data.gates, own, data.steps - 1),
        cells_(data.cells, own, data.steps - 1),
        d_hidden_(data.d_hidden, own, data.steps - 1) {}

  /// Loads the gradients of the step after these, if there is one.
  __device__ void begin(UnitPairs (&after)[kGates]) {
    after_ = cells_.load(0, 1).values();
    if (data_.gates_after == nullptr) return;
    const UnitWalk<kGates> gates(data_.gates_after, own_, 0);
#pragma unroll
    for (int g = 0; g < kGates; ++g) after[g] = gates.load(g);
    d_cell_ = UnitWalk<1>(data_.d_cell, own_, 0).load(0).values();
  }
  __device__ void fetch(int steps) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) fetched_[g] = gates_.load(g, steps);
    fetched_before_ = cells_.load(0, steps);
    fetched_above_ = d_hidden_.load(0, steps);
  }
  __device__ void take() {
#pragma unroll
    for (int g = 0; g < kGates; ++g) inputs_[g] = fetched_[g].values();
    before_ = fetched_before_.values();
    above_ = fetched_above_.values();
  }
  __device__ void backward(const UnitValues& from_next, UnitPairs (&to_product)[kGates]) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const formulas::LstmGradients<float> back = formulas::lstm_step_back<float, QuickFunctions>(
            {inputs_[0].at[q][k], inputs_[1].at[q][k], inputs_[2].at[q][k], inputs_[3].at[q][k]}, before_.at[q][k],
            after_.at[q][k], above_.at[q][k] + from_next.at[q][k], d_cell_.at[q][k]);
        inputs_[0].at[q][k] = back.sums.input;
        inputs_[1].at[q][k] = back.sums.forget;
        inputs_[2].at[q][k] = back.sums.cell;
        inputs_[3].at[q][k] = back.sums.output;
        d_cell_.at[q][k] = back.cell_before;
      }
    }
    after_ = before_;
    // Rounds like storing d_cell between two calls, so that several calls for ranges of steps give the bits of one
    // call.
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const std::uint32_t pair = pair_of(d_cell_.at[q][0], d_cell_.at[q][1]);
      d_cell_.at[q][0] = element_of(pair, 0);
      d_cell_.at[q][1] = element_of(pair, 1);
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) to_product[g] = gates_.store(inputs_[g], g);
    gates_.advance(-1);
    cells_.advance(-1);
    d_hidden_.advance(-1);
  }
  __device__ void end() { UnitWalk<1>(data_.d_cell, own_, 0).store(d_cell_, 0); }

 private:
  const LayerData& data_;
  OwnUnits own_;
  UnitWalk<kGates> gates_;
  UnitWalk<1> cells_, d_hidden_;
  UnitPairs fetched_[kGates], fetched_before_, fetched_above_;
  UnitValues inputs_[kGates], before_, after_, above_, d_cell_;
};

/// Returns the units and sequences of this thread.
__device__ __forceinline__ OwnUnits own_units(const LayerData& data) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int unit = warp * kWarpUnits + lane / 4 * 2;
  const int sequence = static_cast<int>(blockIdx.x) * kLayerSequences + lane % 4 * 2;
  const bool is_unit = unit < data.units;
  return {data.units,
          data.sequences,
          unit,
          sequence,
          {is_unit && sequence < data.sequences, is_unit && sequence + 1 < data.sequences}};
}

template <class Units, int kWarps>
using ForwardStates = LayerStates<kWarps * kWarpUnits>;
template <class Units, int kWarps>
using BackwardStates = LayerStates<Units::kGates * kWarps * kWarpUnits>;

/// kWarps: even, for up to kWarps * kWarpUnits units.
template <class Units, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 1)
    layer_forward(LayerResults results, const Bfloat16* recurrent, const Bfloat16* bias, const Bfloat16* hidden_before,
                  const Bfloat16* cells_before) {
  constexpr int kTerms = kWarps * kWarpUnits, kGates = Units::kGates;
  const LayerData data{results.gates, results.products, hidden_before, cells_before,  nullptr,           recurrent,
                       bias,          nullptr,          nullptr,       results.steps, results.sequences, results.units};
  auto& states = shared<ForwardStates<Units, kWarps>>();
  const OwnUnits own = own_units(data);
  const int sequence = static_cast<int>(threadIdx.x % 4) * 2, group = static_cast<int>(threadIdx.x % kWarp) / 4;
  LayerWeights<kGates, kTerms> weights;
  load_forward(data.recurrent, own, weights);
  Units units(data, own);  // after the weights, whose loads need the registers
  states.put(0, sequence, own.unit, units.begin());
  units.fetch(0);
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < data.steps; ++step) {
    units.take();
    if (step + 1 < data.steps) units.fetch(1);
    float sums[kGates][2][4] = {};
    weights.multiply(states.at[step % 2][group], sums, 0);
    states.put((step + 1) % 2, sequence, own.unit, units.forward(sums));
    __syncthreads();
  }
}

template <class Units, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 1)
    layer_backward(LayerResults results, const Bfloat16* recurrent, const Bfloat16* hidden, const Bfloat16* cells,
                   const Bfloat16* d_hidden, const Bfloat16* gates_after) {
  constexpr int kTerms = kWarps * kWarpUnits, kGates = Units::kGates;
  const LayerData data{results.gates, results.products, hidden,      cells,         results.d_cell,    recurrent,
                       nullptr,       d_hidden,         gates_after, results.steps, results.sequences, results.units};
  auto& states = shared<BackwardStates<Units, kWarps>>();
  const OwnUnits own = own_units(data);
  const int sequence = static_cast<int>(threadIdx.x % 4) * 2, group = static_cast<int>(threadIdx.x % kWarp) / 4;
  Units units(data, own);
  UnitPairs gradients[kGates];
  units.begin(gradients);
  units.fetch(0);
  LayerWeights<kGates, kTerms> weights;
  load_backward(data.recurrent, own, weights);
#pragma unroll 1
  for (int step = data.steps - 1; step >= 0; --step) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) states.put(step % 2, sequence, g * kTerms + own.unit, gradients[g]);
    __syncthreads();
    units.take();
    if (step > 0) units.fetch(-1);
    float sums[kGates][2][4] = {};
    weights.multiply(states.at[step % 2][group], sums, kTerms);
    UnitValues from_next = values_of(sums[0]);
#pragma unroll
    for (int g = 1; g < kGates; ++g) {
      const UnitValues more = values_of(sums[g]);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
#pragma unroll
        for (int k = 0; k < 2; ++k) from_next.at[q][k] += more.at[q][k];
      }
    }
    units.backward(from_next, gradients);
  }
  units.end();
}

}  // namespace lockstep::model::cuda
