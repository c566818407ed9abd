/// \file
/// GPU kernels of image_operations.hpp, which checks shapes and types, except matrix multiplications. As in
/// kernels.hpp, compute type T is float32 or bfloat16, arithmetic is fp32, and sums over samples are double. Each
/// pixel's gradient is gathered by one thread, so every sum has a fixed order without atomics.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

// ---- convolution_kernels.cu ----

/// Writes the matrix that a convolution multiplies with its filters: patches[(b * out pixels + pixel), position in the
/// window * channels + c] = x at that position of the window, or 0 in the padding. x: [B, in.elements()]. patches: [B *
/// out pixels, patch() or more]; columns from patch() on become 0.
void gather_patches(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& patches);
/// d_x = for each input pixel, the sum over all patches that contain it, in ascending order of the position in the
/// window.
void add_patches(cudaStream_t stream, const Convolution& shape, const Tensor& d_patches, const Tensor& d_x);
/// Convolutions with groups, and their gradients, without patches.
void grouped_forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& y);
void grouped_image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                            const Tensor& d_x);
/// d_w: float32, = or +=. workspace: grouped_filter_gradient_bytes().
std::size_t grouped_filter_gradient_bytes(const Convolution& shape, std::int64_t images) noexcept;
void grouped_filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                             Accumulate accumulate, const Tensor& d_w, void* workspace);
/// out = or += in': in [r, c] of the compute type, out [c, r] of that type or float32.
void transpose(cudaStream_t stream, const Tensor& in, Accumulate accumulate, const Tensor& out);

// ---- pool_kernels.cu ----

void max_pool_forward(cudaStream_t stream, const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen);
void max_pool_backward(cudaStream_t stream, const Pool& shape, const Tensor& chosen, const Tensor& d_y,
                       const Tensor& d_x);
void average_pool_forward(cudaStream_t stream, const AveragePool& shape, const Tensor& x, const Tensor& y);
void average_pool_backward(cudaStream_t stream, const AveragePool& shape, const Tensor& d_y, const Tensor& d_x);
void linear_upsampling_forward(cudaStream_t stream, const LinearUpsampling& shape, const Tensor& x, const Tensor& y);
void linear_upsampling_backward(cudaStream_t stream, const LinearUpsampling& shape, const Tensor& d_y,
                                const Tensor& d_x);
void global_average_forward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y);
void global_average_backward(cudaStream_t stream, const ImageShape& in, const Tensor& d_y, const Tensor& d_x);
void subsample_forward(cudaStream_t stream, const ImageShape& in, const ImageShape& out, std::int64_t stride,
                       const Tensor& x, const Tensor& y);
void subsample_backward(cudaStream_t stream, const ImageShape& in, const ImageShape& out, std::int64_t stride,
                        const Tensor& d_y, const Tensor& d_x);

// ---- global_max_kernels.cu ----

void global_max_forward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y);
void global_max_backward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                         const Tensor& d_x);

// ---- channel_kernels.cu ----

/// scratch: memory for partial sums, at least 16 bytes per channel, or std::invalid_argument is thrown. A larger size
/// only improves speed.
void group_norm_forward(cudaStream_t stream, const GroupNorm& norm, const GroupNormForwardOperands& operands,
                        const Scratch& scratch);
void group_norm_backward(cudaStream_t stream, const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                         Accumulate accumulate, const Scratch& scratch);
void softmax_forward(cudaStream_t stream, const Tensor& x, const Tensor& y);
void softmax_backward(cudaStream_t stream, const Tensor& y, const Tensor& d_y, const Tensor& d_x);
void multiply(cudaStream_t stream, const Tensor& a, const Tensor& b, const Tensor& y);
void multiply_sums(cudaStream_t stream, const Tensor& a, const Tensor& d_y, const Tensor& d_b);
void copy_strided(cudaStream_t stream, const StridedCopy& copy, const Tensor& x, const Tensor& y);

// ---- image_kernels.cu ----

void augment(cudaStream_t stream, const Tensor& images, const Tensor& keys, const Augmentation& spec,
             const Tensor& out);
/// Throws std::invalid_argument if the channels do not fit the shared memory of a block (about 6000).
void response_normalization_forward(cudaStream_t stream, const ResponseNormalization& norm, const Tensor& x,
                                    const Tensor& y);
void response_normalization_backward(cudaStream_t stream, const ResponseNormalization& norm, const Tensor& x,
                                     const Tensor& y, const Tensor& d_y, const Tensor& d_x);

// ---- batch_norm_kernels.cu ----

/// Largest scratch of batch_norm_sums() and batch_norm_backward_sums(), for any number of channels.
std::size_t batch_norm_scratch_bytes() noexcept;
void batch_norm_sums(cudaStream_t stream, const BatchNorm& norm, const Tensor& x, const Tensor& sums,
                     const Scratch& scratch);
void batch_norm_forward(cudaStream_t stream, const BatchNorm& norm, const BatchNormForwardOperands& operands);
void batch_norm_statistics(cudaStream_t stream, const BatchNorm& norm, const Tensor& sums, double weight,
                           Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance);
void batch_norm_inference(cudaStream_t stream, const BatchNorm& norm, const BatchNormInferenceOperands& operands);
void batch_norm_inference_backward(cudaStream_t stream, const BatchNorm& norm,
                                   const BatchNormInferenceBackwardOperands& operands);
void batch_norm_backward_sums(cudaStream_t stream, const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                              Accumulate accumulate, const Scratch& scratch);
void batch_norm_backward(cudaStream_t stream, const BatchNorm& norm, const BatchNormBackwardOperands& operands);

}  // namespace lockstep::model::cuda
