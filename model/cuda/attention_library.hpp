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

/// Attention as defined by SequenceOperations. Each function returns false if the library has no deterministic plan (if
/// that is required) or has failed; our own kernels must then compute the whole result. The first call with a shape
/// makes its plan and allocates memory, so it must not be recorded.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;

  [[nodiscard]] virtual bool forward(cudaStream_t stream, const Attention& shape,
                                     const AttentionForwardOperands& operands) = 0;
  /// deltas: float32 [samples * heads, context], workspace for the dot products of the rows of y and d_y.
  [[nodiscard]] virtual bool backward(cudaStream_t stream, const Attention& shape,
                                      const AttentionBackwardOperands& operands, const Tensor& deltas) = 0;
  /// Returns "cuDNN 9.19.0", plus the shapes that it cannot run, with the reason.
  virtual std::string description() const = 0;

 protected:
  AttentionLibrary() = default;
};

struct AttentionLibraryOptions {
  std::size_t most_workspace = kMaxAttentionWorkspace;  ///< bytes
  bool in_any_order = false;                            ///< backward may add in any order if that is faster
};

/// Returns null in a build without a library. memory must outlive the library. before_moving: called before memory that
/// enqueued or recorded work uses is released.
std::unique_ptr<AttentionLibrary> make_attention_library(DeviceMemory& memory, std::function<void()> before_moving,
                                                         const AttentionLibraryOptions& options = {});

}  // namespace lockstep::model::cuda
