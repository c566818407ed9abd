/// \file
/// Operations on sequences on one GPU: products through cuBLASLt, attention through a library if it can run the call,
/// and our own kernels (sequence_kernels.hpp) for everything else. Work runs in the order of one stream, except steps
/// of an LSTM that name a side queue. All of it is enqueued, so a pass of many steps is one graph if the backend
/// records it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/cuda/attention_library.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/matmul.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Resources of the operations. The backend owns them; they must outlive the operations.
struct CudaTools {
  cudaStream_t stream = nullptr;
  std::array<cudaStream_t, kSideQueues> side_streams = {};
  Matmul& matmul;
  DeviceMemory& memory;
  Scratch scratch;  ///< scratch_bytes() for tensors of any width; only for work on `stream`

  cudaStream_t stream_of(Queue queue) const noexcept {
    return queue == Queue::main ? stream : side_streams[queue == Queue::side_1 ? 0 : 1];
  }
};

class CudaSequences final : public SequenceOperations {
 public:
  /// attention: null runs all attention in our own kernels.
  CudaSequences(const CudaTools& tools, const OperationTypes& types,
                std::unique_ptr<AttentionLibrary> attention = nullptr)
      : SequenceOperations(types), tools_(tools), attention_(std::move(attention)) {}

  /// Returns "attention by cuDNN 9.19.0" or "attention by our own kernels".
  std::string description() const;

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(void, override)

  void fill_zero(const Tensor& x);
  void add_position_gradient(const Tensor& d_y, Accumulate accumulate, const Tensor& d_positions);
  /// Blocks of increasing size. Older blocks are kept, because recorded work may use their addresses.
  using Blocks = std::vector<Block>;
  /// Returns workspace for float32 [rows, columns]. Allocates if it is the largest so far, which never happens in a
  /// repeated step.
  Tensor workspace(Blocks& blocks, std::int64_t rows, std::int64_t columns);
  /// The same in the compute type.
  Tensor compute_workspace(Blocks& blocks, std::int64_t rows, std::int64_t columns);
  /// Returns the states before a step: a copy in workspace, with zeros for sequences that restart, or `states` itself
  /// without places.
  Tensor before_step(Blocks& blocks, const Tensor& states, const Tensor& places, cudaStream_t stream);

  CudaTools tools_;
  std::unique_ptr<AttentionLibrary> attention_;
  Blocks deltas_;
  std::array<Blocks, 1 + kSideQueues> lstm_parts_;  ///< by queue
  Blocks hidden_before_, cells_before_, carried_;   ///< for recurrent steps with places
};

}  // namespace lockstep::model::cuda
