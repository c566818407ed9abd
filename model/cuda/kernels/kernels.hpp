/// \file
/// GPU kernels of backend.hpp, except matrix multiplications. Each function enqueues its kernels on `stream` and
/// returns. Tensors are in device memory; backend.hpp defines and checks their shapes and types. Compute type T is
/// float32 or bfloat16, arithmetic is fp32, and sums are double where backend.hpp says so. Every sum has a fixed order
/// that depends on the sizes alone, without atomics on data, so results are deterministic. Throws DeviceError if a
/// launch fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "model/backend.hpp"

namespace lockstep::model::cuda {

/// Device memory for the partial sums of one reduction. Kernels on one stream may share it.
struct Scratch {
  void* data = nullptr;
  std::size_t bytes = 0;
};
/// Returns the largest scratch of the reductions below for tensors of up to this many columns.
std::size_t scratch_bytes(std::int64_t most_columns) noexcept;

/// A part of one slice of the arenas, the work of one block. It starts at a multiple of 4 elements from the start of
/// the slice.
struct UpdateChunk {
  std::uint64_t offset = 0;  ///< elements from the start of the arena
  std::uint32_t count = 0;   ///< 1 to kUpdateChunk
  std::uint32_t slice = 0;   ///< index of its slice
  std::uint32_t decayed = 0, statistic = 0;
  float rate_scale = 1;  ///< rate scale of its slice
};
inline constexpr std::uint32_t kUpdateChunk = 4096;
/// The consecutive chunks of one slice.
struct ChunksOfSlice {
  std::uint32_t first = 0, count = 0;
};
/// Chunks of `slices`, in device memory.
struct UpdateChunks {
  const UpdateChunk* data = nullptr;
  std::uint32_t count = 0;
  const ChunksOfSlice* slices = nullptr;
  std::uint32_t slice_count = 0;
  double* parts = nullptr;  ///< memory for norms: two sums of each chunk
  float* ratios = nullptr;  ///< memory for one number of each slice
};

void convert_input(cudaStream_t stream, const Tensor& in, const InputTransform& transform, const Tensor& out);
/// y = act(y + bias), if the matrix multiplication did not include it; bias may be absent.
void add_bias_and_activate(cudaStream_t stream, const Tensor& y, const Tensor& bias, Activation activation);
/// d_y becomes the gradient before the activation (given y, which `none` ignores); d_bias (float32 [1, columns], may be
/// absent) = or += its column sums.
void activation_gradient(cudaStream_t stream, Activation activation, const Tensor& y, const Tensor& d_y,
                         Accumulate accumulate, const Tensor& d_bias, const Scratch& scratch);
/// shared_bytes: shared memory available to one block of this device. Long bfloat16 rows are read only once if two of
/// them fit the shared memory of a multiprocessor.
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
/// Rules that use norms need two more passes before the update itself.
void update(cudaStream_t stream, const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging,
            const Tensor& rule, const UpdateChunks& chunks, const UpdateGate& gate);
void cast(cudaStream_t stream, const Tensor& in, const Tensor& out);
/// to = from in the common extents, and 0 beyond those of `from`; of one type.
void copy_rows(cudaStream_t stream, const Tensor& from, const Tensor& to);

}  // namespace lockstep::model::cuda
