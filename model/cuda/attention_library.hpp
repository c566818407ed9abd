/// \file
/// Interface to a library with faster attention than our own kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "model/cuda/device_memory.hpp"
#include "model/device_workspaces.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Attention as SequenceOperations defines it. Each function returns false if the library cannot run it repeatably bit
/// for bit (unless that is not required), or has failed; our own kernels then write the whole result. The library
/// queries a shape, and allocates memory for it, at the shape's first call; a recorded call is never the first.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Attention& shape,
                                     const AttentionForwardOperands& operands) = 0;
  /// deltas: float32 [samples * heads, context], workspace for the products of each row of y and d_y.
  [[nodiscard]] virtual bool backward(cudaStream_t stream, const Attention& shape,
                                      const AttentionBackwardOperands& operands, const Tensor& deltas) = 0;
  /// "cuDNN 9.19.0", plus the shapes that it cannot run, with the reason.
  virtual std::string description() const = 0;

 protected:
  AttentionLibrary() = default;
};

struct AttentionLibraryOptions {
  std::size_t most_workspace = kMaxAttentionWorkspace;  ///< bytes
  bool in_any_order = false;  ///< the backward pass may add in a different order each time if that is faster
};

/// Null in a build without a library. `memory` outlives the library; `before_moving` is called before memory that
/// enqueued or recorded work uses is released.
std::unique_ptr<AttentionLibrary> make_attention_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                         const AttentionLibraryOptions& options = {});

}  // namespace lockstep::model::cuda
