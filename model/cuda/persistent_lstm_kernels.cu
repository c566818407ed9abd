#include <algorithm>

#include "model/cuda/persistent_lstm.hpp"
#include "model/cuda/persistent_lstm_kernels.cuh"
#include "model/cuda/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

std::int64_t forward_blocks(std::int64_t hidden) { return (hidden + kLstmUnits - 1) / kLstmUnits; }
/// Of 64 units, which four blocks share backward.
std::int64_t shares(std::int64_t hidden) { return (hidden + kLstmColumns - 1) / kLstmColumns; }
std::int64_t tiles_of(std::int64_t sequences) { return (sequences + kLstmRows - 1) / kLstmRows; }

template <class Kernel, class Data>
void launch_resident(const char* name, Kernel* kernel, std::int64_t blocks, cudaStream_t stream, const Data& data) {
  launch(name, kernel,
         {.blocks = static_cast<unsigned>(blocks),
          .threads = kLstmThreads,
          .shared_bytes = lstm_shared_bytes(data.units),
          .residence = Residence::all_blocks},
         stream, data);
}

bool takes_packs_of(const Tensor& tensor) { return takes_packs<kWideWidth<Bfloat16>>(data_of<Bfloat16>(tensor)); }

}  // namespace

PersistentLimits persistent_limits(const Device& device) noexcept {
  if (!device.cooperative || device.major < 8) return {};
  return {.blocks = device.processors * 3 / 4, .shared_bytes = device.shared_bytes};
}

std::int64_t most_persistent_units(const PersistentLimits& limits) noexcept {
  if (limits.shared_bytes < lstm_shared_bytes(1)) return 0;
  const auto chunks =
      static_cast<std::int64_t>((limits.shared_bytes - sizeof(LstmWorkspace)) / (kLstmChunkPacks * sizeof(uint4)));
  // Backward, units come in whole 64.
  return std::min<std::int64_t>(limits.blocks / kLstmGates * kLstmColumns, chunks * kLstmTerms);
}

bool takes_persistent_lstm(const PersistentLimits& limits, ElementType type, const Lstm& shape) noexcept {
  return type == ElementType::bfloat16 && shape.hidden % kWideWidth<Bfloat16> == 0 &&
         shape.hidden <= most_persistent_units(limits) && shape.sequences <= kMostPersistentSequences;
}

std::size_t persistent_words(std::int64_t sequences, std::int64_t hidden) noexcept {
  return static_cast<std::size_t>(tiles_of(sequences) * (1 + shares(hidden)) * kWordStride);
}

std::size_t persistent_sums(std::int64_t sequences, std::int64_t hidden) noexcept {
  return static_cast<std::size_t>(shares(hidden) * tiles_of(sequences) * kLstmGates * kLstmRows * kLstmColumns);
}

bool takes_persistent_lstm(const LstmForwardOperands& operands) noexcept {
  return takes_packs_of(operands.gates) && takes_packs_of(operands.recurrent) && takes_packs_of(operands.cells) &&
         takes_packs_of(operands.hidden);
}

bool takes_persistent_lstm(const LstmBackwardOperands& operands) noexcept {
  return takes_packs_of(operands.gates) && takes_packs_of(operands.recurrent) && takes_packs_of(operands.cells) &&
         takes_packs_of(operands.d_hidden) && takes_packs_of(operands.d_cell) && takes_packs_of(operands.gates_after);
}

void persistent_lstm_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands,
                             const PersistentWorkspace& workspace) {
  launch_resident("lstm_forward of all steps", lstm_window, forward_blocks(shape.hidden), stream,
                  LstmWindow{.gates = data_of<Bfloat16>(operands.gates),
                             .recurrent = data_of<Bfloat16>(operands.recurrent),
                             .cells = data_of<Bfloat16>(operands.cells),
                             .hidden = data_of<Bfloat16>(operands.hidden),
                             .steps = static_cast<int>(shape.steps),
                             .sequences = static_cast<int>(shape.sequences),
                             .units = static_cast<int>(shape.hidden),
                             .words = workspace.words});
}

void persistent_lstm_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands,
                              const PersistentWorkspace& workspace) {
  launch_resident("lstm_backward of all steps", lstm_window_back, kLstmGates * shares(shape.hidden), stream,
                  LstmWindowBack{.gates = data_of<Bfloat16>(operands.gates),
                                 .recurrent = data_of<Bfloat16>(operands.recurrent),
                                 .cells = data_of<Bfloat16>(operands.cells),
                                 .d_hidden = data_of<Bfloat16>(operands.d_hidden),
                                 .d_cell = data_of<Bfloat16>(operands.d_cell),
                                 .after = data_of<Bfloat16>(operands.gates_after),
                                 .steps = static_cast<int>(shape.steps),
                                 .sequences = static_cast<int>(shape.sequences),
                                 .units = static_cast<int>(shape.hidden),
                                 .words = workspace.words,
                                 .sums = workspace.sums});
}

}  // namespace lockstep::model::cuda
