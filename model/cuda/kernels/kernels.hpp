/// \file
/// The GPU's passes over arrays that are no matrix multiplications: each function enqueues its kernels on `stream` and
/// returns. Tensors are device memory with shapes and types as in backend.hpp, checked there. Compute type T is float32
/// or bfloat16, arithmetic is fp32, sums are double as backend.hpp specifies. Every sum has a fixed order that depends
/// on the sizes alone: no atomics on data, so a call repeats bit for bit. Throws DeviceError if a launch is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "model/backend.hpp"

namespace lockstep::model::cuda {

/// Device memory for the partial sums of one reduction; kernels on one stream may share it.
struct Scratch {
  void* data = nullptr;
  std::size_t bytes = 0;
};
/// Largest scratch of the reductions below for tensors of up to this many columns (column sums keep parts per column).
std::size_t scratch_bytes(std::int64_t most_columns) noexcept;

/// A piece of one slice of the arenas: the work of one block. Chunks of a slice start at multiples of 4 elements from
/// the slice's start.
struct UpdateChunk {
  std::uint64_t offset = 0;  ///< elements from the start of the arena
  std::uint32_t count = 0;   ///< 1 to kUpdateChunk
  std::uint32_t slice = 0;   ///< index of its slice
  std::uint32_t decayed = 0, statistic = 0;
  float rate_scale = 1;  ///< rate scale of its slice
};
inline constexpr std::uint32_t kUpdateChunk = 4096;
/// The chunks of one slice, one after another.
struct ChunksOfSlice {
  std::uint32_t first = 0, count = 0;
};
/// Chunks of `slices`, in device memory.
struct UpdateChunks {
  const UpdateChunk* data = nullptr;
  std::uint32_t count = 0;
  const ChunksOfSlice* slices = nullptr;
  std::uint32_t slice_count = 0;
  double* parts = nullptr;  ///< memory for two sums of each chunk, for norms …
  float* ratios = nullptr;  ///< … and for one number of each slice
};

void convert_input(cudaStream_t stream, const Tensor& in, const InputTransform& transform, const Tensor& out);
/// y = act(y + bias), if the matrix multiplication could not include it; bias may be empty.
void add_bias_and_activate(cudaStream_t stream, const Tensor& y, const Tensor& bias, Activation activation);
/// d_y becomes the gradient before the activation (given y, which `none` ignores); d_bias (float32 [1, columns], may be
/// empty) = or += its column sums.
void activation_gradient(cudaStream_t stream, Activation activation, const Tensor& y, const Tensor& d_y,
                         Accumulate accumulate, const Tensor& d_bias, const Scratch& scratch);
/// shared_bytes: shared memory available to one block of this device. Long rows of bfloat16 are read once if two of
/// them fit on a multiprocessor.
void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
                           const Tensor& sums, const Scratch& scratch, std::size_t shared_bytes = 0);
void mean_error(cudaStream_t stream, const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                const Tensor& sums, const Scratch& scratch);
void binary_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& targets, const LossOptions& options,
                          const Tensor& sums, const Scratch& scratch);
void soft_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& targets, const LossOptions& options,
                        const Tensor& sums, const Scratch& scratch);
void soft_dice(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
               const Tensor& work, const Tensor& sums);
void combine_losses(cudaStream_t stream, const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums);
/// to += x
void add(cudaStream_t stream, const Tensor& x, const Tensor& to);
void apply(cudaStream_t stream, const Elementwise& f, const Tensor& x, const Tensor& y);
void apply_slope(cudaStream_t stream, const Elementwise& f, const Tensor& read, const Tensor& d_y, const Tensor& d_x);
void sum_of_squares(cudaStream_t stream, const Tensor& x, const Tensor& out, Accumulate accumulate,
                    const Scratch& scratch);
void report_loss(cudaStream_t stream, const Tensor& sums, const Tensor& status);
/// gradients += l2 * parameters over the decayed chunks.
void add_l2_gradient(cudaStream_t stream, const Tensor& parameters, const Tensor& gradients, float l2,
                     const UpdateChunks& chunks);
/// Kinds that use norms take two more passes before the update itself.
void update(cudaStream_t stream, const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging,
            const Tensor& rule, const UpdateChunks& chunks, const UpdateGate& gate);
void cast(cudaStream_t stream, const Tensor& in, const Tensor& out);
/// to = from, of one type, in the common extents; 0 beyond those of `from`.
void copy_rows(cudaStream_t stream, const Tensor& from, const Tensor& to);

}  // namespace lockstep::model::cuda
