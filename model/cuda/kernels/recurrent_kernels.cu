#include "model/cuda/kernels/recurrent_kernels.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

constexpr std::int64_t kMaxWarps = 8;

/// Calls body.operator()<kWarps>() with the number of warps for these units.
template <class Body>
void with_warps(std::int64_t units, const Body& body) {
  if (units <= 2 * kWarpUnits) return body.template operator()<2>();
  if (units <= 4 * kWarpUnits) return body.template operator()<4>();
  body.template operator()<kMaxWarps>();
}

template <class Shape>
LayerResults results_of(const Shape& shape, const Tensor& gates) {
  LayerResults results{};
  results.gates = data_of<Bfloat16>(gates);
  results.steps = static_cast<int>(shape.steps);
  results.sequences = static_cast<int>(shape.sequences);
  results.units = static_cast<int>(shape.hidden);
  return results;
}

template <class States>
Grid grid_of(const LayerResults& results, unsigned warps) {
  return {.blocks = static_cast<unsigned>((results.sequences + kLayerSequences - 1) / kLayerSequences),
          .threads = warps * kWarp,
          .shared_bytes = sizeof(States)};
}

/// Returns the rows after the initial state.
Bfloat16* behind_first(const LayerResults& results, const Tensor& states) {
  return data_of<Bfloat16>(states) + static_cast<std::int64_t>(results.sequences) * results.units;
}

/// hidden, cells: begin with the initial state; cells may be absent.
template <class Units>
void run_forward(const char* name, cudaStream_t stream, LayerResults results, const Tensor& recurrent,
                 const Tensor& bias, const Tensor& hidden, const Tensor& cells) {
  results.hidden = behind_first(results, hidden);
  if (cells.present()) results.cells = behind_first(results, cells);
  with_warps(results.units, [&]<int kWarps>() {
    launch(name, layer_forward<Units, kWarps>, grid_of<ForwardStates<Units, kWarps>>(results, kWarps), stream, results,
           data_of<Bfloat16>(recurrent), data_of<Bfloat16>(bias), data_of<Bfloat16>(hidden), data_of<Bfloat16>(cells));
  });
}

/// Tensors that a backward pass reads.
struct BackwardReads {
  Tensor recurrent, hidden = {}, cells = {}, d_hidden, gates_after = {};
};
template <class Units>
void run_backward(const char* name, cudaStream_t stream, const LayerResults& results, const BackwardReads& reads) {
  with_warps(results.units, [&]<int kWarps>() {
    launch(name, layer_backward<Units, kWarps>, grid_of<BackwardStates<Units, kWarps>>(results, kWarps), stream,
           results, data_of<Bfloat16>(reads.recurrent), data_of<Bfloat16>(reads.hidden), data_of<Bfloat16>(reads.cells),
           data_of<Bfloat16>(reads.d_hidden), data_of<Bfloat16>(reads.gates_after));
  });
}

}  // namespace

bool takes_whole_layer(const Tensor& hidden) {
  return hidden.type == ElementType::bfloat16 && hidden.columns % 2 == 0 && hidden.columns <= kMaxWarps * kWarpUnits;
}

void gru_layer_forward(cudaStream_t stream, const Gru& shape, const GruForwardOperands& operands) {
  LayerResults results = results_of(shape, operands.gates);
  results.products = data_of<Bfloat16>(operands.products);
  run_forward<GruForward>("gru_forward", stream, results, operands.recurrent, operands.bias, operands.hidden, {});
}

void gru_layer_backward(cudaStream_t stream, const Gru& shape, const GruBackwardOperands& operands) {
  LayerResults results = results_of(shape, operands.gates);
  results.products = data_of<Bfloat16>(operands.products);
  run_backward<GruBackward>(
      "gru_backward", stream, results,
      {.recurrent = operands.recurrent, .hidden = operands.hidden, .d_hidden = operands.d_hidden});
}

void lstm_layer_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands) {
  run_forward<LstmForward>("lstm_forward", stream, results_of(shape, operands.gates), operands.recurrent, {},
                           operands.hidden, operands.cells);
}

void lstm_layer_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands) {
  LayerResults results = results_of(shape, operands.gates);
  results.d_cell = data_of<Bfloat16>(operands.d_cell);
  run_backward<LstmBackward>("lstm_backward", stream, results,
                             {.recurrent = operands.recurrent,
                              .cells = operands.cells,
                              .d_hidden = operands.d_hidden,
                              .gates_after = operands.gates_after});
}

}  // namespace lockstep::model::cuda
