#include "model/cpu/bf16/linear.hpp"

#include <algorithm>
#include <array>

#include "model/cpu/bf16/gemm.hpp"
#include "model/cpu/bf16/gradients.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/formulas/activations.hpp"

namespace lockstep::model::cpu {

namespace {

/// Smallest product that uses several threads, in multiply-adds (about 20 us of one core).
constexpr std::size_t kThreadingWork = 10'000'000;

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }

/// Calls work for each row of a tile, cut to its columns.
template <class Work>
void for_runs(const SumsTile& tile, const Work& work) {
  if (tile.columns == kBf16Panel) return work(std::span(tile.sums, tile.rows * kBf16Panel));
  for (std::size_t i = 0; i < tile.rows; ++i) work(std::span(tile.sums + i * kBf16Panel, tile.columns));
}

/// Writes a tile of sums to its place in a tensor. bias and is_relu (see Bf16Rounding) need a tensor in bf16.
void put(const Bf16Kernels& kernels, const SumsTile& tile, const Tensor& to, const float* bias = nullptr,
         bool is_relu = false) {
  const std::size_t columns = size(to.columns), first = tile.row * columns + tile.column;
  if (to.type == ElementType::bfloat16) {
    return kernels.round({.rows = tile.rows,
                          .columns = tile.columns,
                          .sums = tile.sums,
                          .bias = bias,
                          .is_relu = is_relu,
                          .to = static_cast<Bf16*>(to.data) + first,
                          .stride = columns});
  }
  float* const rows = to.elements<float>().data() + first;
  for (std::size_t i = 0; i < tile.rows; ++i) {
    std::copy_n(tile.sums + i * kBf16Panel, tile.columns, rows + i * columns);
  }
}

/// The inverse: reads a tile from its place in a tensor.
void get(const Tensor& from, const SumsTile& tile, float* sums) {
  const std::size_t columns = size(from.columns), first = tile.row * columns + tile.column;
  for (std::size_t i = 0; i < tile.rows; ++i) {
    if (from.type == ElementType::bfloat16) {
      widen({static_cast<const Bf16*>(from.data) + first + i * columns, tile.columns},
            {sums + i * kBf16Panel, tile.columns});
    } else {
      std::copy_n(from.elements<float>().data() + first + i * columns, tile.columns, sums + i * kBf16Panel);
    }
  }
}

/// sums[o] += column o of the rows [row, row + rows), for the columns [begin, end).
void add_sums(const Tensor& of, std::size_t row, std::size_t rows, std::size_t begin, std::size_t end,
              std::span<float> sums) {
  const std::size_t columns = size(of.columns);
  if (of.type == ElementType::bfloat16) {
    return activation_gradient(Activation::none, nullptr, static_cast<Bf16*>(of.data) + row * columns, rows, columns,
                               begin, end, sums);
  }
  add_column_sums(of.elements<float>().subspan(row * columns, rows * columns), columns, begin, end, sums);
}

template <Activation kActivation>
LOCKSTEP_INLINE void gradient_rows(const Bf16* y, Bf16* d_y, std::size_t rows, std::size_t columns, std::size_t begin,
                                   std::size_t end, float* d_bias) {
  for (std::size_t row = 0; row < rows; ++row, y += columns, d_y += columns) {
    const Bf16* __restrict value = y;
    Bf16* __restrict gradient = d_y;
    float* __restrict sums = d_bias;
    if constexpr (kActivation == Activation::relu) {
      // Compares bits: positive numbers have bits 1 to 0x7F80. A register holds twice as many 16-bit integers as
      // floats.
      for (std::size_t o = begin; o < end; ++o) {
        gradient[o] = static_cast<Bf16>(value[o] - 1) < 0x7F80 ? gradient[o] : Bf16{0};
      }
    } else if constexpr (kActivation != Activation::none) {
      for (std::size_t o = begin; o < end; ++o) {
        gradient[o] = to_bf16(formulas::gradient_before<kActivation>(to_float(value[o]), to_float(gradient[o])));
      }
    }
    if (sums == nullptr) continue;
    for (std::size_t o = begin; o < end; ++o) sums[o] += to_float(gradient[o]);
  }
}

}  // namespace

LOCKSTEP_CLONES void activation_gradient(Activation activation, const Bf16* y, Bf16* d_y, std::size_t rows,
                                         std::size_t columns, std::size_t begin, std::size_t end,
                                         std::span<float> d_bias) {
  float* const sums = d_bias.empty() ? nullptr : d_bias.data();
  switch (activation) {
    case Activation::none:
      return gradient_rows<Activation::none>(d_y, d_y, rows, columns, begin, end, sums);
    case Activation::relu:
      return gradient_rows<Activation::relu>(y, d_y, rows, columns, begin, end, sums);
    case Activation::tanh:
      return gradient_rows<Activation::tanh>(y, d_y, rows, columns, begin, end, sums);
    case Activation::sigmoid:
      return gradient_rows<Activation::sigmoid>(y, d_y, rows, columns, begin, end, sums);
  }
}

void bf16_linear_forward(const Bf16LinearForward& map, ThreadPool& threads, Bf16Unit unit) {
  const auto& [x, w, bias, y, activation, z] = map;
  const Bf16Kernels& kernels = bf16_kernels(unit);
  const std::size_t rows = size(y.rows), inputs = size(x.columns), outputs = size(y.columns);
  const auto shift = bias.elements<float>();
  const auto take = [&](const SumsTile& tile) {
    const auto own = shift.empty() ? shift : shift.subspan(tile.column, tile.columns);
    const bool is_relu = activation == Activation::relu;
    if (!z.present() && y.type == ElementType::bfloat16 && (is_relu || activation == Activation::none)) {
      return put(kernels, tile, y, own.empty() ? nullptr : own.data(), is_relu);
    }
    if (!z.present()) {
      for_runs(tile, [&](std::span<float> run) { add_bias_and_activate(run, tile.columns, own, activation); });
      return put(kernels, tile, y);
    }
    alignas(64) std::array<float, kSumsTile> active;
    for_runs(tile, [&](std::span<float> run) {
      gelu(run, tile.columns, own,
           std::span(active).subspan(static_cast<std::size_t>(run.data() - tile.sums), run.size()));
    });
    put(kernels, tile, z);
    SumsTile result = tile;
    result.sums = active.data();
    put(kernels, result, y);
  };
  const Bf16Factor left(x, 0, inputs);
  const Factor right{w.elements<float>().data(), outputs};
  const std::size_t threshold = rows * inputs * outputs < kThreadingWork ? std::max(rows, outputs) + 1 : 2 * kBf16Panel;
  // Splits the larger extent, because each thread packs the factor that is not split.
  if (outputs > rows) {
    return threads.split(outputs, kBf16Panel, threshold, [&](std::size_t begin, std::size_t end) {
      bf16_product(unit, {rows, end - begin, inputs}, left, right.from(0, begin), {0, begin}, TakeSums(take));
    });
  }
  threads.split(rows, kBf16Panel, threshold, [&](std::size_t begin, std::size_t end) {
    bf16_product(unit, {end - begin, outputs, inputs}, left.from(begin, 0), right, {begin, 0}, TakeSums(take));
  });
}

void bf16_linear_backward(const Bf16LinearBackward& map, PanelMemory& memory, ThreadPool& threads, Bf16Unit unit) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = map.operands;
  const auto& [operands, activation, accumulate, z, d_z_sums] = map;
  const Bf16Kernels& kernels = bf16_kernels(unit);
  const std::size_t inputs = size(x.columns), outputs = size(d_y.columns);
  const auto sums = d_bias.elements<float>();
  const auto prepare = [&](std::size_t row, std::size_t rows, std::size_t begin, std::size_t end) {
    if (d_y.type == ElementType::bfloat16) {
      const Bf16* const value = activation == Activation::none ? nullptr : static_cast<const Bf16*>(y.data);
      return activation_gradient(activation, value == nullptr ? nullptr : value + row * outputs,
                                 static_cast<Bf16*>(d_y.data) + row * outputs, rows, outputs, begin, end, sums);
    }
    const auto part = [&](const Tensor& all) { return all.elements<float>().subspan(row * outputs, rows * outputs); };
    activation_gradient(activation, activation == Activation::none ? std::span<float>() : part(y), part(d_y), outputs,
                        begin, end, sums);
  };
  // With several threads, rows are split among them, and a sum over rows must have a fixed order.
  const auto z_sums = d_z_sums.elements<float>();
  const bool adds_at_once = threads.size() == 1 && !z_sums.empty();
  const auto take = [&](const SumsTile& tile) {
    if (z.present()) {
      alignas(64) std::array<float, kSumsTile> value;
      get(z, tile, value.data());
      for_runs(tile, [&](std::span<float> run) {
        gelu_gradient(std::span(value).subspan(static_cast<std::size_t>(run.data() - tile.sums), run.size()), run,
                      tile.columns, 0, tile.columns, {});
      });
    }
    put(kernels, tile, d_x);
    if (adds_at_once) add_sums(d_x, tile.row, tile.rows, tile.column, tile.column + tile.columns, z_sums);
  };
  const TakeSums take_d_x(take);
  bf16_gradients(unit,
                 {.rows = size(d_y.rows),
                  .inputs = inputs,
                  .outputs = outputs,
                  .x = Bf16Factor(x, 0, inputs),
                  .w = w.elements<float>().data(),
                  .d_y = Bf16Factor(d_y, 0, outputs),
                  .d_w = d_w.elements<float>().data(),
                  .take = d_x.present() ? &take_d_x : nullptr},
                 accumulate, Prepare(prepare), {}, memory, threads);
  if (adds_at_once || z_sums.empty()) return;
  threads.split(inputs, kBf16Panel, 2 * kBf16Panel,
                [&](std::size_t begin, std::size_t end) { add_sums(d_x, 0, size(d_x.rows), begin, end, z_sums); });
}

}  // namespace lockstep::model::cpu
