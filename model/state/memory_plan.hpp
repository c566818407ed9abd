/// \file
/// Plans the memory of a model before any is allocated.
#pragma once

#include <cstddef>
#include <optional>

#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/parameter_state.hpp"

namespace lockstep::model {

/// Bytes by purpose.
struct MemoryPlan {
  std::size_t parameters = 0;  ///< with a copy in the compute type, if that differs
  std::size_t gradients = 0, optimizer = 0, average = 0;
  std::size_t activations = 0;    ///< and recurrent state
  std::size_t input = 0;          ///< batches staged on a device
  std::size_t products = 0;       ///< a device's workspace for matrix products (cuBLASLt), and padded copies for them
  std::size_t patches = 0;        ///< device: patches (im2col) of convolutions that run as products, without cuDNN
  std::size_t cudnn = 0;          ///< device: workspace of convolutions and attention, with cuDNN
  std::size_t kernels = 0;        ///< device: code, loaded at first use, and recorded graphs
  std::size_t communication = 0;  ///< buffers of the communicator between devices; set by its maker
  /// Copy of the state for a checkpoint, in host memory, on ranks that keep one; not part of total().
  std::size_t snapshot = 0;
  std::size_t total() const noexcept {
    return parameters + gradients + optimizer + average + activations + input + products + patches + cudnn + kernels +
           communication;
  }
};

/// Facts of a backend that determine memory.
struct MemoryTypes {
  ElementType compute = ElementType::float32;
  ElementType master = ElementType::float32;
  ElementType narrow = compute;
  bool is_host = true;
  /// True if cuDNN computes a GPU's convolutions and attention in bfloat16; nullopt: true if cuDNN is available here,
  /// which is queried only if it matters. The workspace of attention then counts on every GPU, even if our own kernels
  /// compute it.
  std::optional<bool> cudnn = std::nullopt;
};
MemoryTypes memory_types(const Backend& backend);
MemoryTypes memory_types_on_gpu(Precision precision) noexcept;

MemoryPlan plan_memory(const Network& network, const ModelOptions& options, const ParameterStateOptions& state_options,
                       const MemoryTypes& types);

}  // namespace lockstep::model
