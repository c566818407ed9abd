/// \file
/// Passes over NHWC images, except convolutions: fp32 in registers, fp32 or bf16 in memory, vectorised over the
/// channels. Each is for one thread on a part of the data. Pointers point to the whole arrays; ranges select the part.
/// A NaN stays a NaN.
///   image_loops.cpp             pools, averages, shortcuts
///   image_loops_response.cpp    local response normalisation
///   image_loops_batch_norm.cpp  batch normalisation
///   image_loops_bias.cpp        biases of bf16 images
///   image_loops_upsample.cpp    linear upsampling
///   image_loops_channels.cpp    softmax, products, copies of parts
///   image_loops_augment.cpp     augmentation
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/cpu/bf16/number.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

// ---- Pools ----
//
// rows: rows of the written images, numbered through the batch: (image * depth + plane) * height + row.
// Each operand may be float32 or bfloat16; those of subsample() must have the same type.

void max_pool(const Pool& shape, const Tensor& x, const Tensor& y, std::uint8_t* chosen, Slice rows);
/// Gathers: each pixel of d_x reads the windows that contain it, so d_x is written once and in order.
void max_pool_gradient(const Pool& shape, const std::uint8_t* chosen, const Tensor& d_y, const Tensor& d_x, Slice rows);

void average_pool(const AveragePool& shape, const Tensor& x, const Tensor& y, Slice rows);
void average_pool_gradient(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x, Slice rows);

/// Elements of scratch that each of the two functions below needs per thread.
std::size_t upsampling_scratch(const LinearUpsampling& shape);
void linear_upsampling(const LinearUpsampling& shape, const float* x, float* y, Slice rows, std::span<float> scratch);
void linear_upsampling_gradient(const LinearUpsampling& shape, const float* d_y, float* d_x, Slice rows,
                                std::span<float> scratch);

void global_max(const ImageShape& in, const float* x, float* y, Slice images);
void global_max_gradient(const ImageShape& in, const float* x, const float* y, const float* d_y, float* d_x,
                         Slice images);

void global_average(const ImageShape& in, const Tensor& x, const Tensor& y, Slice images);
void global_average_gradient(const ImageShape& in, const Tensor& d_y, const Tensor& d_x, Slice images);

void subsample(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x, const Tensor& y,
               Slice images);
void subsample_gradient(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& d_y,
                        const Tensor& d_x, Slice images);

// ---- Local response normalisation. pixels: numbered through the batch. ----

/// Elements of scratch that each of the two functions below needs per thread.
std::size_t response_scratch(const ResponseNormalization& norm);
/// x and y have the same type, float32 or bfloat16; also in the gradient.
void response_normalization(const ResponseNormalization& norm, const Tensor& x, const Tensor& y, Slice pixels,
                            std::span<float> scratch);
/// d_x may be d_y.
void response_normalization_gradient(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                     const Tensor& d_y, const Tensor& d_x, Slice pixels, std::span<float> scratch);

// ---- Batch normalisation ----
//
// pixels: numbered through the batch. Arrays per channel have `channels` elements.

/// sums [2 channels] = sum of x, sum of x^2, in double.
void channel_sums(std::size_t channels, const float* x, Slice pixels, double* sums);
void channel_sums(std::size_t channels, const Bf16* x, Slice pixels, double* sums);
/// y = relu?((x - mean) * gain + shift + residual); residual may be nullptr. Element: float or Bf16.
template <class Element>
struct NormalizeArrays {
  const Element* x = nullptr;
  const float *mean = nullptr, *gain = nullptr, *shift = nullptr;  ///< per channel
  const Element* residual = nullptr;
  Element* y = nullptr;
};
void normalize(const BatchNorm& norm, const NormalizeArrays<float>& arrays, Slice pixels);
void normalize(const BatchNorm& norm, const NormalizeArrays<Bf16>& arrays, Slice pixels);
/// With relu, d_y becomes 0 unless y > 0. sums [2 channels] = sum of d_y, sum of d_y (x - mean), in double. If y is
/// nullptr, the mask of the relu is (x - mean) * gain + relu_shift > 0, and d_y does not change; also in
/// batch_norm_gradient().
template <class Element>
struct NormalizeGradientSums {
  const Element *x = nullptr, *y = nullptr;
  Element* d_y = nullptr;
  const float *mean = nullptr, *gain = nullptr, *relu_shift = nullptr;  ///< per channel
  double* sums = nullptr;
};
void normalize_gradient_sums(const BatchNorm& norm, const NormalizeGradientSums<float>& arrays, Slice pixels);
void normalize_gradient_sums(const BatchNorm& norm, const NormalizeGradientSums<Bf16>& arrays, Slice pixels);
/// d_x = gain * d_y + (x - mean) * slope + shift; d_x may be d_y. relu_shift: not nullptr if the mask must be applied
/// here.
template <class Element>
struct NormalizeGradient {
  const Element *x = nullptr, *d_y = nullptr;
  const float *mean = nullptr, *gain = nullptr, *slope = nullptr, *shift = nullptr;  ///< per channel
  const float* relu_shift = nullptr;                                                 ///< per channel
  Element* d_x = nullptr;
};
void normalize_gradient(const BatchNorm& norm, const NormalizeGradient<float>& arrays, Slice pixels);
void normalize_gradient(const BatchNorm& norm, const NormalizeGradient<Bf16>& arrays, Slice pixels);
/// With relu, d_y becomes 0 unless y > 0. d_x = gain * d_y; d_x may be d_y.
template <class Element>
struct NormalizeFixedGradient {
  const Element* y = nullptr;
  Element* d_y = nullptr;
  const float* gain = nullptr;  ///< per channel
  Element* d_x = nullptr;
};
void normalize_fixed_gradient(const BatchNorm& norm, const NormalizeFixedGradient<float>& arrays, Slice pixels);
void normalize_fixed_gradient(const BatchNorm& norm, const NormalizeFixedGradient<Bf16>& arrays, Slice pixels);

// ---- Biases of bf16 images (image_loops_bias.cpp) with so few pixels that they fit the first-level cache. ----

/// y = relu?(sums + bias); bias may be nullptr. Half: Bf16, or NativeBf16.
template <class Half>
struct BiasArrays {
  const float *sums = nullptr, *bias = nullptr;
  Half* y = nullptr;
};
void add_bias_and_round(bool relu, const BiasArrays<Bf16>& arrays, std::size_t channels, std::size_t pixels);
/// With relu, d_y becomes 0 unless y > 0. sums [channels], unless nullptr, += the sums of d_y.
template <class Half>
struct BiasGradientArrays {
  const Half* y = nullptr;
  Half* d_y = nullptr;
  float* sums = nullptr;
};
void bias_gradient(bool relu, const BiasGradientArrays<Bf16>& arrays, std::size_t channels, std::size_t pixels);

// ---- Channels of positions (image_loops_channels.cpp). rows: range of rows of a matrix [rows, columns]. ----

void softmax_rows(const float* x, float* y, std::size_t columns, Slice rows);
/// d_x may be d_y.
void softmax_gradient_rows(const float* y, const float* d_y, float* d_x, std::size_t columns, Slice rows);
/// Each row of b multiplies `served` rows of a. rows: range of rows of b. y may be a.
void multiply_rows(const float* a, const float* b, float* y, std::size_t columns, std::size_t served, Slice rows);
void multiply_sums_of_rows(const float* a, const float* d_y, float* d_b, std::size_t columns, std::size_t served,
                           Slice rows);
void copy_strided(const StridedCopy& copy, const float* x, float* y, Slice samples);

// ---- Augmentation ----

/// Augments images [begin, end) of a batch. Stored: uint8, float or double. keys: nullptr in evaluation. scratch: two
/// elements per channel.
template <class Stored>
void augment(const Augmentation& spec, const Stored* images, const std::uint64_t* keys, float* out, Slice range,
             std::span<double> scratch);

}  // namespace lockstep::model::cpu
