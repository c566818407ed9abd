/// \file
/// A library that makes attention faster than our own kernels do, where there is one.
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

/// Attention as SequenceOperations defines it. Each function returns false where the library has no way to do it that
/// repeats bit for bit (unless it need not), or has failed; our own kernels then write everything that the call writes. What the library
/// finds out about a shape, and memory for it, it takes when the shape comes first; a recorded call is never the first.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Attention& shape,
                                     const AttentionForwardOperands& operands) = 0;
  /// deltas: float32 [samples * heads, context], room for the products of each row of y and d_y.
  [[nodiscard]] virtual bool backward(cudaStream_t stream, const Attention& shape,
                                      const AttentionBackwardOperands& operands, const Tensor& deltas) = 0;
  /// "cuDNN 9.19.0", and what it does not do, with the reason
  virtual std::string description() const = 0;

 protected:
  AttentionLibrary() = default;
};

struct AttentionLibraryOptions {
  std::size_t most_workspace = kMostAttentionWorkspace;  ///< bytes
  bool in_any_order = false;  ///< the backward pass may add in another order each time, where that is faster
};

/// Null where the program was built without one. `memory` outlives the library; `before_moving` is called before memory
/// that enqueued or recorded work uses is given back.
std::unique_ptr<AttentionLibrary> make_attention_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                         const AttentionLibraryOptions& options = {});

}  // namespace lockstep::model::cuda
