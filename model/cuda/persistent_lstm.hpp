/// \file
/// Several steps of one LSTM layer in one kernel (Diamos et al., "Persistent RNNs: stashing recurrent weights on-chip",
/// 2016): its blocks are all resident, keep their share of the recurrent weights in shared memory for all the steps,
/// and meet between two steps. persistent_lstm_kernels.cuh says how.
///
/// A grid whose blocks wait for each other must never be one of two that wait for room. Three things keep it so:
/// - Launches are cooperative: CUDA refuses a grid that the device could not hold alone.
/// - A grid takes at most three quarters of the multiprocessors, one block each. Kernels of other streams that do not
///   wait for anything end by themselves. Those that wait for other ranks (NCCL's) take an eighth at most, so that
///   neither of the two needs the other's room to begin. On a GPU that several ranks share nobody can count so: there
///   it is not used.
/// - All launches are on one stream, so no two of these grids are ever under way together.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "model/device.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// What a device leaves to these kernels; of none as it is.
struct PersistentLimits {
  int blocks = 0;
  std::size_t shared_bytes = 0;  ///< of a block
};
PersistentLimits persistent_limits(const Device& device) noexcept;

/// The most hidden units that fit; 0: none do.
std::int64_t most_persistent_units(const PersistentLimits& limits) noexcept;
/// Of more sequences the product of a step, on the multiprocessors of one layer, takes longer than the launches that it
/// saves (an estimate: tests/gpu/roofline.py).
inline constexpr std::int64_t kMostPersistentSequences = 256;
/// Whether steps of this shape run so: a static rule. Elements of float32 do not. Their weights take twice the room,
/// and a step's product takes several times as long as a launch, without tensor cores: there is little to save.
bool takes_persistent_lstm(const PersistentLimits& limits, ElementType type, const Lstm& shape) noexcept;

/// Device memory that the kernels work in.
struct PersistentWorkspace {
  unsigned* words = nullptr;  ///< 0 before the first kernel; each leaves them 0
  float* sums = nullptr;
};
std::size_t persistent_words(std::int64_t sequences, std::int64_t hidden) noexcept;  ///< elements
std::size_t persistent_sums(std::int64_t sequences, std::int64_t hidden) noexcept;   ///< elements

/// Whether all is aligned for it.
bool takes_persistent_lstm(const LstmForwardOperands& operands) noexcept;
bool takes_persistent_lstm(const LstmBackwardOperands& operands) noexcept;
/// As SequenceOperations says, with at least one step and one sequence. The numbers of a step depend on no other step
/// of the call but through the state, so steps in several calls make the same bits.
void persistent_lstm_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands,
                             const PersistentWorkspace& workspace);
void persistent_lstm_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands,
                              const PersistentWorkspace& workspace);

}  // namespace lockstep::model::cuda
