#include "model/cuda/cuda_images.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/cuda/convolution_by_gemm.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/kernels/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

void clear(cudaStream_t stream, const Tensor& x) {
  if (!x.present() || x.count() == 0) return;
  check(cudaMemsetAsync(x.data, 0, x.bytes(), stream), "clearing memory");
}

}  // namespace

CudaImages::CudaImages(Device device)
    : ImageOperations(device.types),
      device_(std::move(device)),
      pair_sums_(device_.memory, batch_norm_scratch_bytes()) {
  if (device_.types.compute == ElementType::bfloat16) {
    library_ = make_convolution_library(device_.memory, device_.forget_recordings, device_.tuning);
  }
}

std::string CudaImages::description() const {
  return fmt::format("convolutions by {}", library_ == nullptr ? "products" : library_->description());
}

// ---- convolutions ----

void* CudaImages::patch_workspace(const Convolution& shape, const Tensor& x) {
  return workspace(patch_bytes(shape, x.type, x.rows));
}

void* CudaImages::workspace(std::size_t bytes) {
  if (bytes > 0 && library_ != nullptr && library_->is_there()) return library_->workspace(bytes);
  if (bytes > patches_.bytes()) {
    // Releases the old memory, which must be unused, before it allocates the new: both together may not fit.
    if (patches_.data() != nullptr) device_.forget_recordings();
    { const Block old = std::move(patches_); }
    patches_ = Block(device_.memory, bytes);
  }
  return patches_.data();
}

ConvolutionLibrary* CudaImages::library_for(const Convolution& shape) const noexcept {
  return is_product(shape) || shape.groups > 1 ? nullptr : library_.get();
}

namespace {

/// Convolutions of images with fewer channels, and their filter gradients, run as products of patches in whole packs.
/// cuDNN would pad such images to eight channels: for the first convolution of ResNet-50 with 256 images, an H200 took
/// 1.7 ms to move 0.5 GB.
constexpr std::int64_t kMinLibraryChannels = 8;

}  // namespace

void CudaImages::do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                                        Activation activation, const Tensor& y) {
  if (y.count() == 0) return;
  const cudaStream_t stream = device_.stream;
  const auto finish = [&](const Tensor& matrix, const Tensor& missing) {
    if (!missing.present() && activation == Activation::none) return;
    add_bias_and_activate(stream, matrix, missing, activation);
  };
  ConvolutionLibrary* const library = shape.in.channels < kMinLibraryChannels ? nullptr : library_for(shape);
  if (library != nullptr && library->forward(stream, shape, x, w, y)) {
    return finish(pixels_of(y, shape.out, 0, y.rows), bias);
  }
  if (shape.groups > 1) {
    grouped_forward(stream, shape, x, w, y);
    return finish(pixels_of(y, shape.out, 0, y.rows), bias);
  }
  convolution_by_gemm(stream, shape, x, w, y, patch_workspace(shape, x),
                      [&](const Tensor& patches, const Tensor& filters, const Tensor& out) {
                        const bool biased = device_.matmul.multiply_with_bias(stream, {patches}, {filters}, bias, out);
                        if (!biased) device_.matmul.multiply(stream, {patches}, {filters}, Accumulate::no, out);
                        finish(out, biased ? Tensor{} : bias);
                      });
}

void CudaImages::do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                         Activation activation, Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const cudaStream_t stream = device_.stream;
  if (d_y.count() == 0) {  // no samples: sums are zero
    if (accumulate == Accumulate::yes) return;
    clear(stream, d_w);
    return clear(stream, d_bias);
  }
  if (activation != Activation::none || d_bias.present()) {
    activation_gradient(stream, activation, pixels_of(y, shape.out, 0, y.rows), pixels_of(d_y, shape.out, 0, d_y.rows),
                        accumulate, d_bias, device_.scratch);
  }
  if (shape.groups > 1) {
    if (d_w.present()) {
      grouped_filter_gradient(stream, shape, x, d_y, accumulate, d_w,
                              workspace(grouped_filter_gradient_bytes(shape, x.rows)));
    }
    if (d_x.present()) grouped_image_gradient(stream, shape, w, d_y, d_x);
    return;
  }
  ConvolutionLibrary* const library = library_for(shape);
  const bool by_library = library != nullptr && shape.in.channels >= kMinLibraryChannels;
  if (d_w.present() && (!by_library || !library->filter_gradient(stream, shape, x, d_y, accumulate, d_w))) {
    filter_gradient_by_gemm(stream, shape, x, d_y, accumulate, d_w, patch_workspace(shape, x),
                            [&](const Tensor& patches, const Tensor& gradient, Accumulate add, const Tensor& out) {
                              device_.matmul.multiply(stream, {patches, Matmul::Transposed::yes}, {gradient}, add, out);
                            });
  }
  if (!d_x.present()) return;
  if (library == nullptr || !library->image_gradient(stream, shape, w, d_y, d_x)) {
    image_gradient_by_gemm(
        stream, shape, w, d_y, d_x, patch_workspace(shape, d_x),
        [&](const Tensor& gradient, const Tensor& filters, const Tensor& out) {
          device_.matmul.multiply(stream, {gradient}, {filters, Matmul::Transposed::yes}, Accumulate::no, out);
        });
  }
}

bool CudaImages::adds_image_gradient(const Convolution& shape) const noexcept { return is_product(shape); }

void CudaImages::do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y,
                                       const Tensor& d_x) {
  if (d_y.count() == 0) return;
  device_.matmul.multiply(device_.stream, {pixels_of(d_y, shape.out, 0, d_y.rows)}, {w, Matmul::Transposed::yes},
                          Accumulate::yes, pixels_of(d_x, shape.in, 0, d_x.rows));
}

// ---- everything else; an empty batch launches nothing ----

void CudaImages::do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) {
  cuda::augment(device_.stream, images, keys, spec, out);
}

void CudaImages::do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  cuda::max_pool_forward(device_.stream, shape, x, y, chosen);
}

void CudaImages::do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) {
  cuda::max_pool_backward(device_.stream, shape, chosen, d_y, d_x);
}

void CudaImages::do_average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y) {
  cuda::average_pool_forward(device_.stream, shape, x, y);
}

void CudaImages::do_average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x) {
  cuda::average_pool_backward(device_.stream, shape, d_y, d_x);
}

void CudaImages::do_linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y) {
  cuda::linear_upsampling_forward(device_.stream, shape, x, y);
}

void CudaImages::do_linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y, const Tensor& d_x) {
  cuda::linear_upsampling_backward(device_.stream, shape, d_y, d_x);
}

void CudaImages::do_global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  cuda::global_max_forward(device_.stream, in, x, y);
}

void CudaImages::do_global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                                        const Tensor& d_x) {
  cuda::global_max_backward(device_.stream, in, x, y, d_y, d_x);
}

void CudaImages::do_group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands) {
  cuda::group_norm_forward(device_.stream, norm, operands, {pair_sums_.data(), pair_sums_.bytes()});
}

void CudaImages::do_group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                                        Accumulate accumulate) {
  cuda::group_norm_backward(device_.stream, norm, operands, accumulate, {pair_sums_.data(), pair_sums_.bytes()});
}

void CudaImages::do_softmax_forward(const Tensor& x, const Tensor& y) { cuda::softmax_forward(device_.stream, x, y); }

void CudaImages::do_softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  cuda::softmax_backward(device_.stream, y, d_y, d_x);
}

void CudaImages::do_multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  cuda::multiply(device_.stream, a, b, y);
}

void CudaImages::do_multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b) {
  cuda::multiply_sums(device_.stream, a, d_y, d_b);
}

void CudaImages::do_copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y) {
  cuda::copy_strided(device_.stream, copy, x, y);
}

void CudaImages::do_bias_forward(const Tensor& bias, Activation activation, const Tensor& y) {
  if (y.count() == 0 || (!bias.present() && activation == Activation::none)) return;
  add_bias_and_activate(device_.stream, y, bias, activation);
}

void CudaImages::do_bias_backward(Activation activation, const Tensor& y, const Tensor& d_y, Accumulate accumulate,
                                  const Tensor& d_bias) {
  if (d_y.count() == 0) {  // no samples: sums are zero
    if (accumulate == Accumulate::no) clear(device_.stream, d_bias);
    return;
  }
  if (activation == Activation::none && !d_bias.present()) return;
  activation_gradient(device_.stream, activation, y, d_y, accumulate, d_bias, device_.scratch);
}

void CudaImages::do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  cuda::global_average_forward(device_.stream, in, x, y);
}

void CudaImages::do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  cuda::global_average_backward(device_.stream, in, d_y, d_x);
}

void CudaImages::do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                                   const Tensor& y) {
  cuda::response_normalization_forward(device_.stream, norm, x, y);
}

void CudaImages::do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                                    const Tensor& d_y, const Tensor& d_x) {
  cuda::response_normalization_backward(device_.stream, norm, x, y, d_y, d_x);
}

void CudaImages::do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                                      const Tensor& y) {
  cuda::subsample_forward(device_.stream, in, out, stride, x, y);
}

void CudaImages::do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                       const Tensor& d_y, const Tensor& d_x) {
  cuda::subsample_backward(device_.stream, in, out, stride, d_y, d_x);
}

void CudaImages::do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  cuda::batch_norm_sums(device_.stream, norm, x, sums, {pair_sums_.data(), pair_sums_.bytes()});
}

void CudaImages::do_batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  cuda::batch_norm_forward(device_.stream, norm, operands);
}

void CudaImages::do_batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight,
                                          Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance) {
  cuda::batch_norm_statistics(device_.stream, norm, sums, weight, accumulate, d_mean, d_variance);
}

void CudaImages::do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
  cuda::batch_norm_inference(device_.stream, norm, operands);
}

void CudaImages::do_batch_norm_inference_backward(const BatchNorm& norm,
                                                  const BatchNormInferenceBackwardOperands& operands) {
  cuda::batch_norm_inference_backward(device_.stream, norm, operands);
}

void CudaImages::do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                             Accumulate accumulate) {
  cuda::batch_norm_backward_sums(device_.stream, norm, operands, accumulate, {pair_sums_.data(), pair_sums_.bytes()});
}

void CudaImages::do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  cuda::batch_norm_backward(device_.stream, norm, operands);
}

}  // namespace lockstep::model::cuda
