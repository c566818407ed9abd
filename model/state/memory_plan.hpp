/// \file
/// Plans the memory of a model before any is taken.
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
  std::size_t parameters = 0;  ///< with their copy in the compute type, if the types differ
  std::size_t gradients = 0, optimizer = 0, average = 0;
  std::size_t activations = 0;  ///< with recurrent state
  std::size_t input = 0;        ///< batches staged on a device
  std::size_t products = 0;     ///< a device's workspace for matrix products (cuBLASLt), and padded copies for them
  std::size_t patches = 0;      ///< device: patches of convolutions as products (im2col), without a library for them
  std::size_t cudnn =
      0;  ///< device: workspace of convolutions and attention, and of those that cuDNN leaves to products
  std::size_t kernels = 0;        ///< device: code, loaded at first use, and recorded graphs
  std::size_t communication = 0;  ///< buffers of sums between devices; set by the code that makes the communicator
  /// A copy of the state for a checkpoint, in host memory, on the ranks that keep one; no part of the total.
  std::size_t snapshot = 0;
  std::size_t total() const noexcept {
    return parameters + gradients + optimizer + average + activations + input + products + patches + cudnn + kernels +
           communication;
  }
};

/// Sizes of elements, and whether batches are copied.
struct MemoryTypes {
  ElementType compute = ElementType::float32;
  ElementType master = ElementType::float32;
  ElementType narrow = compute;
  bool is_host = true;
  /// Selects if cuDNN does a GPU's convolutions and attention in bfloat16; nullopt: as available here, queried only if
  /// it matters. Attention then counts on every GPU, even if our own kernels run it.
  std::optional<bool> cudnn = std::nullopt;
};
MemoryTypes memory_types(const Backend& backend);
MemoryTypes memory_types_on_gpu(Precision precision) noexcept;

MemoryPlan plan_memory(const Network& network, const ModelOptions& options, const ParameterStateOptions& state_options,
                       const MemoryTypes& types);

}  // namespace lockstep::model
