#include "model/cuda/recurrent_kernels.cuh"
#include "model/cuda/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

constexpr std::int64_t kMaxWarps = 8;

Bfloat16* data_of_pairs(const Tensor& tensor) { return static_cast<Bfloat16*>(tensor.data); }

template <class Units, int kWarps, template <class, int> class States>
void start(const char* name, void (*kernel)(LayerData), cudaStream_t stream, const LayerData& data) {
  const auto blocks = static_cast<unsigned>((data.sequences + kLayerSequences - 1) / kLayerSequences);
  launch(name, kernel, {.blocks = blocks, .threads = kWarps * kWarp, .shared_bytes = sizeof(States<Units, kWarps>)},
         stream, data);
}

/// Calls body.operator()<kWarps>() with the warps for so many units.
template <class Body>
void with_warps(std::int64_t units, const Body& body) {
  if (units <= 2 * kWarpUnits) return body.template operator()<2>();
  if (units <= 4 * kWarpUnits) return body.template operator()<4>();
  body.template operator()<kMaxWarps>();
}

template <class Units>
void run_forward(const char* name, cudaStream_t stream, const LayerData& data) {
  with_warps(data.units, [&]<int kWarps>() {
    start<Units, kWarps, ForwardStates>(name, layer_forward<Units, kWarps>, stream, data);
  });
}
template <class Units>
void run_backward(const char* name, cudaStream_t stream, const LayerData& data) {
  with_warps(data.units, [&]<int kWarps>() {
    start<Units, kWarps, BackwardStates>(name, layer_backward<Units, kWarps>, stream, data);
  });
}

template <class Shape>
LayerData layer_data(const Shape& shape) {
  LayerData data{};
  data.steps = static_cast<int>(shape.steps);
  data.sequences = static_cast<int>(shape.sequences);
  data.units = static_cast<int>(shape.hidden);
  return data;
}

}  // namespace

bool takes_whole_layer(const Tensor& hidden) {
  return hidden.type == ElementType::bfloat16 && hidden.columns % 2 == 0 && hidden.columns <= kMaxWarps * kWarpUnits;
}

void gru_layer_forward(cudaStream_t stream, const Gru& shape, const GruForwardOperands& operands) {
  LayerData data = layer_data(shape);
  data.gates = data_of_pairs(operands.gates);
  data.recurrent = data_of_pairs(operands.recurrent);
  data.bias = data_of_pairs(operands.bias);
  data.products = data_of_pairs(operands.products);
  data.hidden = data_of_pairs(operands.hidden);
  run_forward<GruForward>("gru_forward", stream, data);
}

void gru_layer_backward(cudaStream_t stream, const Gru& shape, const GruBackwardOperands& operands) {
  LayerData data = layer_data(shape);
  data.gates = data_of_pairs(operands.gates);
  data.recurrent = data_of_pairs(operands.recurrent);
  data.products = data_of_pairs(operands.products);
  data.hidden = data_of_pairs(operands.hidden);
  data.d_hidden = data_of_pairs(operands.d_hidden);
  run_backward<GruBackward>("gru_backward", stream, data);
}

void lstm_layer_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands) {
  LayerData data = layer_data(shape);
  data.gates = data_of_pairs(operands.gates);
  data.recurrent = data_of_pairs(operands.recurrent);
  data.cells = data_of_pairs(operands.cells);
  data.hidden = data_of_pairs(operands.hidden);
  run_forward<LstmForward>("lstm_forward", stream, data);
}

void lstm_layer_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands) {
  LayerData data = layer_data(shape);
  data.gates = data_of_pairs(operands.gates);
  data.recurrent = data_of_pairs(operands.recurrent);
  data.cells = data_of_pairs(operands.cells);
  data.d_hidden = data_of_pairs(operands.d_hidden);
  data.gates_after = data_of_pairs(operands.gates_after);
  data.d_cell = data_of_pairs(operands.d_cell);
  run_backward<LstmBackward>("lstm_backward", stream, data);
}

}  // namespace lockstep::model::cuda
