#include "model/image_operations.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "model/formulas/augmentation.hpp"
#include "model/operation_checks.hpp"

namespace lockstep::model {

namespace {

constexpr std::int64_t kMaxPoolSide = 16;

bool is_image(const ImageShape& shape) { return shape.height > 0 && shape.width > 0 && shape.channels > 0; }

std::int64_t ceiling(std::int64_t extent, std::int64_t stride) { return (extent + stride - 1) / stride; }

void require_window(const Sliding& window, const char* operation) {
  require(window.height > 0 && window.width > 0 && window.stride > 0, operation,
          "window and stride must be at least 1");
  require(window.top >= 0 && window.bottom >= 0 && window.left >= 0 && window.right >= 0, operation,
          "padding must not be negative");
}

void require_shape(const Convolution& shape, const char* operation) {
  require(is_image(shape.in) && is_image(shape.out), operation, "images must have pixels and channels");
  require(shape.out == slide(shape.in, shape.window, shape.out.channels), operation,
          "out must be what the window makes of in");
}

/// Tells whether both the first and the last of `count` windows along one direction see a pixel.
bool all_see(std::int64_t extent, std::int64_t window, std::int64_t stride, std::int64_t before, std::int64_t count) {
  return before < window && (count - 1) * stride - before < extent;
}

void require_shape(const Pool& shape, const char* operation) {
  const Sliding& window = shape.window;
  require(is_image(shape.in), operation, "images must have pixels and channels");
  require(shape.out == slide(shape.in, window, shape.in.channels), operation,
          "out must be what the window makes of in, with the same channels");
  require(window.height <= kMaxPoolSide && window.width <= kMaxPoolSide, operation,
          "windows are at most 16 x 16: positions in one fit a byte");
  require(all_see(shape.in.height, window.height, window.stride, window.top, shape.out.height) &&
              all_see(shape.in.width, window.width, window.stride, window.left, shape.out.width),
          operation, "each window must see a pixel");
}

void require_shape(const ResponseNormalization& norm, const char* operation) {
  require(norm.channels > 0 && norm.radius >= 0, operation, "at least one channel, and no negative radius");
  require(norm.bias > 0 && norm.alpha >= 0, operation, "bias must be positive and alpha not negative");
}

void require_shape(const BatchNorm& norm, const char* operation) {
  require(norm.channels > 0, operation, "at least one channel");
  require(norm.epsilon > 0, operation, "epsilon must be positive");
}

/// Checks for the shape [batch, pixels * channels].
bool has_channels(const Tensor& x, ElementType type, std::int64_t channels) {
  return is(x, type, x.rows, x.columns) && x.columns > 0 && x.columns % channels == 0;
}

void require_subsampling(const ImageShape& in, const ImageShape& out, std::int64_t stride, const char* operation) {
  require(is_image(in) && stride > 0, operation,
          "the image must have pixels and channels, and the stride be 1 or more");
  require(out.height == ceiling(in.height, stride) && out.width == ceiling(in.width, stride), operation,
          "out must be ceil(in / stride) high and wide");
  require(out.channels >= in.channels && (out.channels - in.channels) % 2 == 0, operation,
          "the channels must grow by an even number");
}

void require_spec(const Augmentation& spec, const char* operation) {
  require(is_image(spec.in) && is_image(spec.out) && spec.in.channels == spec.out.channels, operation,
          "images must have pixels, and as many channels before as after");
  const std::int64_t longest = std::max({spec.in.height, spec.in.width, spec.out.height, spec.out.width, spec.pad});
  require(longest <= formulas::kLongestSide, operation, "images are at most 32768 high and wide");
  require(spec.pad >= 0, operation, "padding must not be negative");
  require(spec.minimum_area > 0 && spec.minimum_area <= 1, operation, "minimum_area must be in (0, 1]");
  require(spec.minimum_area < 1 ||
              (spec.in.height + 2 * spec.pad >= spec.out.height && spec.in.width + 2 * spec.pad >= spec.out.width),
          operation, "the crop must fit the padded image");
  require(spec.brightness >= 0 && std::isfinite(spec.brightness), operation,
          "brightness must be a number and not negative");
  require(
      spec.contrast_low <= spec.contrast_high && std::isfinite(spec.contrast_low) && std::isfinite(spec.contrast_high),
      operation, "contrast must be a range of numbers, the lower first");
}

Sliding same_along_both(const ImageShape& in, std::int64_t window, std::int64_t stride) {
  const auto padding = [&](std::int64_t extent) {
    return std::max<std::int64_t>(0, (ceiling(extent, stride) - 1) * stride + window - extent);
  };
  const std::int64_t rows = padding(in.height), columns = padding(in.width);
  return {window, window, stride, rows / 2, rows - rows / 2, columns / 2, columns - columns / 2};
}

}  // namespace

Sliding same_padding(const ImageShape& in, std::int64_t window, std::int64_t stride) {
  require_window({.height = window, .width = window, .stride = stride}, "same_padding");
  require(in.height > 0 && in.width > 0, "same_padding", "the image must have pixels");
  return same_along_both(in, window, stride);
}

Sliding even_padding(std::int64_t window, std::int64_t stride, std::int64_t padding) {
  const Sliding sliding{window, window, stride, padding, padding, padding, padding};
  require_window(sliding, "even_padding");
  return sliding;
}

ImageShape slide(const ImageShape& in, const Sliding& window, std::int64_t channels) {
  require_window(window, "slide");
  const std::int64_t rows = in.height + window.top + window.bottom - window.height;
  const std::int64_t columns = in.width + window.left + window.right - window.width;
  if (in.height <= 0 || in.width <= 0 || rows < 0 || columns < 0) {
    throw std::invalid_argument(fmt::format("a window of {} x {} does not fit an image of {} x {}", window.height,
                                            window.width, in.height, in.width));
  }
  return {rows / window.stride + 1, columns / window.stride + 1, channels};
}

void ImageOperations::augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) {
  require_spec(spec, "augment");
  require(
      images.type == ElementType::uint8 || images.type == ElementType::float32 || images.type == ElementType::float64,
      "augment", "images must be uint8, float32 or float64");
  require(is(images, images.type, images.rows, spec.in.elements()), "augment",
          "images must be [batch, elements of the stored image]");
  require(absent_or(keys, ElementType::uint64, images.rows, 1), "augment", "keys must be uint64 [batch, 1]");
  require(is(out, types_.compute, images.rows, spec.out.elements()), "augment",
          "out must be [batch, elements of the crop] in the compute type");
  require(apart(images, out), "augment", "out must have memory of its own");
  do_augment(images, keys, spec, out);
}

void ImageOperations::convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w,
                                          const Tensor& bias, Activation activation, const Tensor& y) {
  const char* const operation = "convolution_forward";
  require_shape(shape, operation);
  require(is(x, types_.compute, x.rows, shape.in.elements()), operation,
          "x must be [batch, in.elements()] in the compute type");
  require(is(w, types_.compute, shape.patch(), shape.out.channels), operation,
          "w must be [patch, out channels] in the compute type");
  require(absent_or(bias, types_.compute, 1, shape.out.channels), operation, "bias must be [1, out channels]");
  require(is(y, types_.compute, x.rows, shape.out.elements()), operation,
          "y must be [batch, out.elements()] in the compute type");
  require(apart(x, y), operation, "y must have memory of its own");
  do_convolution_forward(shape, x, w, bias, activation, y);
}

void ImageOperations::convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                           Activation activation, Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const char* const operation = "convolution_backward";
  require_shape(shape, operation);
  require(is(x, types_.compute, x.rows, shape.in.elements()), operation,
          "x must be [batch, in.elements()] in the compute type");
  require(is(w, types_.compute, shape.patch(), shape.out.channels), operation,
          "w must be [patch, out channels] in the compute type");
  require(is(d_y, types_.compute, x.rows, shape.out.elements()), operation,
          "d_y must be [batch, out.elements()] in the compute type");
  require(activation == Activation::none || is(y, types_.compute, x.rows, shape.out.elements()), operation,
          "y must be [batch, out.elements()] where there is an activation");
  require(absent_or(d_w, types_.master, shape.patch(), shape.out.channels), operation,
          "d_w must have the shape of w and the master type");
  require(absent_or(d_bias, types_.master, 1, shape.out.channels), operation,
          "d_bias must be [1, out channels] in the master type");
  require(absent_or(d_x, types_.compute, x.rows, x.columns), operation, "d_x must have the shape of x");
  require(apart(d_x, x) && apart(d_x, d_y), operation, "d_x must have memory of its own");
  do_convolution_backward(shape, operands, activation, accumulate);
}

void ImageOperations::add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y,
                                         const Tensor& d_x) {
  const char* const operation = "add_image_gradient";
  require_shape(shape, operation);
  require(adds_image_gradient(shape), operation, "this device does not add for such a convolution");
  require(is(w, types_.compute, shape.patch(), shape.out.channels), operation,
          "w must be [patch, out channels] in the compute type");
  require(is(d_y, types_.compute, d_y.rows, shape.out.elements()), operation,
          "d_y must be [batch, out.elements()] in the compute type");
  require(is(d_x, types_.compute, d_y.rows, shape.in.elements()), operation,
          "d_x must be [batch, in.elements()] in the compute type");
  require(apart(d_x, d_y), operation, "d_x must have memory of its own");
  do_add_image_gradient(shape, w, d_y, d_x);
}

void ImageOperations::max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  require_shape(shape, "max_pool_forward");
  require(is(x, types_.compute, x.rows, shape.in.elements()), "max_pool_forward",
          "x must be [batch, in.elements()] in the compute type");
  require(is(y, types_.compute, x.rows, shape.out.elements()), "max_pool_forward",
          "y must be [batch, out.elements()] in the compute type");
  require(is(chosen, ElementType::uint8, x.rows, shape.out.elements()), "max_pool_forward",
          "chosen must be uint8 [batch, out.elements()]");
  require(apart(x, y), "max_pool_forward", "y must have memory of its own");
  do_max_pool_forward(shape, x, y, chosen);
}

void ImageOperations::max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) {
  require_shape(shape, "max_pool_backward");
  require(is(chosen, ElementType::uint8, d_y.rows, shape.out.elements()), "max_pool_backward",
          "chosen must be uint8 [batch, out.elements()]");
  require(is(d_y, types_.compute, d_y.rows, shape.out.elements()), "max_pool_backward",
          "d_y must be [batch, out.elements()] in the compute type");
  require(is(d_x, types_.compute, d_y.rows, shape.in.elements()), "max_pool_backward",
          "d_x must be [batch, in.elements()] in the compute type");
  require(apart(d_y, d_x), "max_pool_backward", "d_x must have memory of its own");
  do_max_pool_backward(shape, chosen, d_y, d_x);
}

void ImageOperations::global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  require(is_image(in), "global_average_forward", "images must have pixels and channels");
  require(is(x, types_.compute, x.rows, in.elements()) && is(y, types_.compute, x.rows, in.channels),
          "global_average_forward", "x must be [batch, in.elements()], y [batch, channels], in the compute type");
  require(apart(x, y), "global_average_forward", "y must have memory of its own");
  do_global_average_forward(in, x, y);
}

void ImageOperations::global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  require(is_image(in), "global_average_backward", "images must have pixels and channels");
  require(is(d_y, types_.compute, d_y.rows, in.channels) && is(d_x, types_.compute, d_y.rows, in.elements()),
          "global_average_backward", "d_y must be [batch, channels], d_x [batch, in.elements()], in the compute type");
  require(apart(d_y, d_x), "global_average_backward", "d_x must have memory of its own");
  do_global_average_backward(in, d_y, d_x);
}

void ImageOperations::response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                                     const Tensor& y) {
  const char* const operation = "response_normalization_forward";
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(y, types_.compute, x.rows, x.columns), operation, "y must have the shape of x");
  require(apart(x, y), operation, "y must have memory of its own");
  do_response_normalization_forward(norm, x, y);
}

void ImageOperations::response_normalization_backward(const ResponseNormalization& norm, const Tensor& x,
                                                      const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "response_normalization_backward";
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(y, types_.compute, x.rows, x.columns) && is(d_y, types_.compute, x.rows, x.columns) &&
              is(d_x, types_.compute, x.rows, x.columns),
          operation, "y, d_y and d_x must have the shape of x");
  require(apart(d_x, x) && apart(d_x, y) && same_or_apart(d_x, d_y), operation,
          "d_x must have memory of its own, or all of that of d_y");
  do_response_normalization_backward(norm, x, y, d_y, d_x);
}

void ImageOperations::subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                        const Tensor& x, const Tensor& y) {
  require_subsampling(in, out, stride, "subsample_forward");
  require(is(x, types_.compute, x.rows, in.elements()) && is(y, types_.compute, x.rows, out.elements()),
          "subsample_forward", "x must be [batch, in.elements()], y [batch, out.elements()], in the compute type");
  require(apart(x, y), "subsample_forward", "y must have memory of its own");
  do_subsample_forward(in, out, stride, x, y);
}

void ImageOperations::subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                         const Tensor& d_y, const Tensor& d_x) {
  require_subsampling(in, out, stride, "subsample_backward");
  require(is(d_y, types_.compute, d_y.rows, out.elements()) && is(d_x, types_.compute, d_y.rows, in.elements()),
          "subsample_backward", "d_y must be [batch, out.elements()], d_x [batch, in.elements()], in the compute type");
  require(apart(d_y, d_x), "subsample_backward", "d_x must have memory of its own");
  do_subsample_backward(in, out, stride, d_y, d_x);
}

void ImageOperations::batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  require_shape(norm, "batch_norm_sums");
  require(has_channels(x, types_.compute, norm.channels), "batch_norm_sums",
          "x must be [batch, pixels * channels] in the compute type");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels + 1), "batch_norm_sums",
          "sums must be float64 [1, 2 * channels + 1]");
  do_batch_norm_sums(norm, x, sums);
}

void ImageOperations::batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  const auto& [x, sums, scale, shift, residual, mean, inverse, y] = operands;
  const char* const operation = "batch_norm_forward";
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels + 1), operation,
          "sums must be float64 [1, 2 * channels + 1]");
  require(is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels), operation,
          "scale and shift must be [1, channels] in the compute type");
  require(absent_or(residual, types_.compute, x.rows, x.columns), operation, "residual must have the shape of x");
  require(is(mean, types_.master, 1, norm.channels) && is(inverse, types_.master, 1, norm.channels), operation,
          "mean and inverse must be [1, channels] in the master type");
  require(is(y, types_.compute, x.rows, x.columns), operation, "y must have the shape of x");
  require(apart(x, y) && same_or_apart(residual, y), operation,
          "y must have memory of its own, or all of that of the residual");
  do_batch_norm_forward(norm, operands);
}

void ImageOperations::batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight,
                                            Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance) {
  require_shape(norm, "batch_norm_statistics");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels + 1), "batch_norm_statistics",
          "sums must be float64 [1, 2 * channels + 1]");
  require(is(d_mean, types_.master, 1, norm.channels) && is(d_variance, types_.master, 1, norm.channels),
          "batch_norm_statistics", "d_mean and d_variance must be [1, channels] in the master type");
  do_batch_norm_statistics(norm, sums, weight, accumulate, d_mean, d_variance);
}

void ImageOperations::batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
  const auto& [x, mean, variance, scale, shift, residual, y] = operands;
  const char* const operation = "batch_norm_inference";
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(mean, types_.compute, 1, norm.channels) && is(variance, types_.compute, 1, norm.channels) &&
              is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels),
          operation, "mean, variance, scale and shift must be [1, channels] in the compute type");
  require(absent_or(residual, types_.compute, x.rows, x.columns), operation, "residual must have the shape of x");
  require(is(y, types_.compute, x.rows, x.columns), operation, "y must have the shape of x");
  require(same_or_apart(x, y) && same_or_apart(residual, y), operation,
          "y must have memory of its own, or all of that of x or of the residual");
  do_batch_norm_inference(norm, operands);
}

void ImageOperations::batch_norm_inference_backward(const BatchNorm& norm,
                                                    const BatchNormInferenceBackwardOperands& operands) {
  const auto& [y, d_y, variance, scale, d_x] = operands;
  const char* const operation = "batch_norm_inference_backward";
  require_shape(norm, operation);
  require(has_channels(d_y, types_.compute, norm.channels), operation,
          "d_y must be [batch, pixels * channels] in the compute type");
  require(!norm.relu || is(y, types_.compute, d_y.rows, d_y.columns), operation,
          "y must have the shape of d_y where there is a relu");
  require(is(variance, types_.compute, 1, norm.channels) && is(scale, types_.compute, 1, norm.channels), operation,
          "variance and scale must be [1, channels] in the compute type");
  require(is(d_x, types_.compute, d_y.rows, d_y.columns), operation, "d_x must have the shape of d_y");
  require(apart(d_y, y) && apart(d_x, y) && same_or_apart(d_x, d_y), operation,
          "d_x must have memory of its own, or all of that of d_y");
  do_batch_norm_inference_backward(norm, operands);
}

void ImageOperations::batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                               Accumulate accumulate) {
  const auto& [x, y, d_y, mean, inverse, scale, shift, d_scale, d_shift, sums] = operands;
  const char* const operation = "batch_norm_backward_sums";
  const bool recomputed = norm.relu && recomputes_relu() && shift.present();
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(d_y, types_.compute, x.rows, x.columns), operation, "d_y must have the shape of x");
  require(!norm.relu || recomputed || is(y, types_.compute, x.rows, x.columns), operation,
          "y must have the shape of x where there is a relu");
  require(recomputed ? is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels)
                     : !scale.present() && !shift.present(),
          operation,
          "scale and shift must be [1, channels] in the compute type where a relu is recomputed, else absent");
  require(is(mean, types_.master, 1, norm.channels) && is(inverse, types_.master, 1, norm.channels), operation,
          "mean and inverse must be [1, channels] in the master type");
  require(absent_or(d_scale, types_.master, 1, norm.channels) && absent_or(d_shift, types_.master, 1, norm.channels),
          operation, "d_scale and d_shift must be [1, channels] in the master type");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels), operation, "sums must be float64 [1, 2 * channels]");
  require(apart(d_y, x) && apart(d_y, y), operation, "d_y must have memory of its own");
  do_batch_norm_backward_sums(norm, operands, accumulate);
}

void ImageOperations::batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  const auto& [x, d_y, mean, inverse, scale, shift, forward_sums, sums, d_x] = operands;
  const char* const operation = "batch_norm_backward";
  require(!shift.present() || (norm.relu && recomputes_relu() && is(shift, types_.compute, 1, norm.channels)),
          operation, "shift must be [1, channels] in the compute type where a relu is recomputed, else absent");
  require_shape(norm, operation);
  require(has_channels(x, types_.compute, norm.channels), operation,
          "x must be [batch, pixels * channels] in the compute type");
  require(is(d_y, types_.compute, x.rows, x.columns) && is(d_x, types_.compute, x.rows, x.columns), operation,
          "d_y and d_x must have the shape of x");
  require(is(mean, types_.master, 1, norm.channels) && is(inverse, types_.master, 1, norm.channels), operation,
          "mean and inverse must be [1, channels] in the master type");
  require(is(scale, types_.compute, 1, norm.channels), operation, "scale must be [1, channels] in the compute type");
  require(is(forward_sums, ElementType::float64, 1, 2 * norm.channels + 1) &&
              is(sums, ElementType::float64, 1, 2 * norm.channels),
          operation, "forward_sums must be float64 [1, 2 * channels + 1], sums float64 [1, 2 * channels]");
  require(apart(d_x, x) && same_or_apart(d_x, d_y), operation,
          "d_x must have memory of its own, or all of that of d_y");
  do_batch_norm_backward(norm, operands);
}

}  // namespace lockstep::model
