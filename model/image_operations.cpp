#include "model/image_operations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/formulas/augmentation.hpp"
#include "model/operation_checks.hpp"

namespace lockstep::model {

namespace {

bool has_pixels(const ImageShape& shape) { return std::ranges::min(shape.extents()) > 0; }
bool is_shape(const ImageShape& shape) { return has_pixels(shape) && shape.channels > 0; }

std::int64_t ceiling(std::int64_t extent, std::int64_t stride) { return (extent + stride - 1) / stride; }

void require_window(const Sliding& window, const char* operation) {
  for (const Sweep& sweep : window.sweeps()) {
    require(sweep.size > 0 && sweep.stride > 0 && sweep.dilation > 0, operation,
            "window, stride and dilation must be at least 1");
    require(sweep.before >= 0 && sweep.after >= 0, operation, "padding must not be negative");
  }
}

void require_shape(const Convolution& shape, const char* operation) {
  require(is_shape(shape.in) && is_shape(shape.out), operation, "images must have pixels and channels");
  require(shape.out == slide(shape.in, shape.window, shape.out.channels), operation,
          "out must be what the window makes of in");
  require(shape.groups > 0 && shape.in.channels % shape.groups == 0 && shape.out.channels % shape.groups == 0,
          operation, "the groups must divide the channels of in and of out");
}

/// True if each of `count` windows along one direction covers one of `extent` pixels.
bool all_see(std::int64_t extent, const Sweep& sweep, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    // First position of the window that is not in the padding before the pixels.
    const std::int64_t first = i * sweep.stride - sweep.before,
                       skipped = first < 0 ? (-first + sweep.dilation - 1) / sweep.dilation : 0;
    if (skipped >= sweep.size || first + skipped * sweep.dilation >= extent) return false;
  }
  return true;
}

void require_shape(const Pool& shape, const char* operation) {
  const Sliding& window = shape.window;
  require(is_shape(shape.in), operation, "images must have pixels and channels");
  require(shape.out == slide(shape.in, window, shape.in.channels), operation,
          "out must be what the window makes of in, with the same channels");
  require(all_see_pixels(shape), operation, "each window must see a pixel");
}

void require_shape(const LinearUpsampling& shape, const char* operation) {
  require(is_shape(shape.in) && shape.out.channels == shape.in.channels, operation,
          "images must have pixels and channels, the same of in and out");
  const auto in = shape.in.extents(), out = shape.out.extents();
  for (std::size_t i = 0; i < in.size(); ++i) {
    require(out[i] > 0 && out[i] % in[i] == 0 && out[i] <= kMaxUpsampledExtent, operation,
            "extents of out must be multiples of those of in");
  }
}

void require_max_pool(const Pool& shape, const char* operation) {
  require_shape(shape, operation);
  require(shape.window.positions() <= kMaxPoolPositions, operation,
          "windows have at most 256 positions: 16 x 16, or 6 x 6 x 6; their numbers fit a byte");
}

void require_shape(const ResponseNormalization& norm, const char* operation) {
  require(norm.channels > 0 && norm.radius >= 0, operation, "at least one channel, and no negative radius");
  require(norm.bias > 0 && norm.alpha >= 0, operation, "bias must be positive and alpha not negative");
}

void require_shape(const GroupNorm& norm, const char* operation) {
  require(norm.places > 0 && norm.channels > 0 && norm.groups > 0 && norm.channels % norm.groups == 0, operation,
          "at least one place and channel, and groups that divide the channels");
  require(norm.epsilon > 0, operation, "epsilon must be positive");
}

void require_shape(const BatchNorm& norm, const char* operation) {
  require(norm.channels > 0, operation, "at least one channel");
  require(norm.epsilon > 0, operation, "epsilon must be positive");
}

/// True if the columns are pixels * channels.
bool has_channels(const Tensor& x, std::int64_t channels) { return x.columns > 0 && x.columns % channels == 0; }

void require_subsampling(const ImageShape& in, const ImageShape& out, std::int64_t stride, const char* operation) {
  require(is_shape(in) && in.depth == 1 && out.depth == 1 && stride > 0, operation,
          "the image must have pixels and channels, and the stride be 1 or more");
  require(out.height == ceiling(in.height, stride) && out.width == ceiling(in.width, stride), operation,
          "out must be ceil(in / stride) high and wide");
  require(out.channels >= in.channels && (out.channels - in.channels) % 2 == 0, operation,
          "the channels must grow by an even number");
}

void require_spec(const Augmentation& spec, const char* operation) {
  require(is_shape(spec.in) && is_shape(spec.out) && spec.in.channels == spec.out.channels, operation,
          "images must have pixels, and as many channels before as after");
  require(spec.in.depth > 1 || (spec.out.depth == 1 && !spec.flip_depth), operation, "images have no depth");
  require(spec.in.depth == 1 || spec.minimum_area == 1, operation, "volumes are not scaled");
  const std::int64_t longest =
      std::max({std::ranges::max(spec.in.extents()), std::ranges::max(spec.out.extents()), spec.pad});
  require(longest <= formulas::kLongestSide, operation, "images are at most 32768 long in any direction");
  require(spec.out.elements() <= std::numeric_limits<std::int32_t>::max(), operation,
          "an augmented image has fewer than 2^31 numbers");
  require(spec.pad >= 0, operation, "padding must not be negative");
  require(spec.minimum_area > 0 && spec.minimum_area <= 1, operation, "minimum_area must be in (0, 1]");
  require(spec.minimum_area < 1 ||
              (spec.in.depth + (spec.in.depth > 1 ? 2 * spec.pad : 0) >= spec.out.depth &&
               spec.in.height + 2 * spec.pad >= spec.out.height && spec.in.width + 2 * spec.pad >= spec.out.width),
          operation, "the crop must fit the padded image");
  require(spec.brightness >= 0 && std::isfinite(spec.brightness), operation,
          "brightness must be a number and not negative");
  require(
      spec.contrast_low <= spec.contrast_high && std::isfinite(spec.contrast_low) && std::isfinite(spec.contrast_high),
      operation, "contrast must be a range of numbers, the lower first");
}

}  // namespace

Sliding same_padding(const ImageShape& in, Sliding window) {
  require_window(window, "same_padding");
  require(has_pixels(in), "same_padding", "the image must have pixels");
  const auto pad = [](Sweep& sweep, std::int64_t extent) {
    const std::int64_t covered = (ceiling(extent, sweep.stride) - 1) * sweep.stride + sweep.reach(),
                       padding = std::max<std::int64_t>(0, covered - extent);
    sweep.before = padding / 2;
    sweep.after = padding - padding / 2;
  };
  pad(window.depth, in.depth);
  pad(window.height, in.height);
  pad(window.width, in.width);
  return window;
}

Sliding same_padding(const ImageShape& in, std::int64_t size, std::int64_t stride) {
  const Sweep sweep{.size = size, .stride = stride};
  return same_padding(in, {.height = sweep, .width = sweep});
}

Sliding even_padding(std::int64_t size, std::int64_t stride, std::int64_t padding) {
  const Sweep sweep{.size = size, .stride = stride, .before = padding, .after = padding};
  const Sliding sliding{.height = sweep, .width = sweep};
  require_window(sliding, "even_padding");
  return sliding;
}

ImageShape slide(const ImageShape& in, const Sliding& window, std::int64_t channels) {
  require_window(window, "slide");
  const auto extents = in.extents();
  const auto sweeps = window.sweeps();
  std::array<std::int64_t, 3> out{};
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    const std::int64_t room = extents[i] + sweeps[i].before + sweeps[i].after - sweeps[i].reach();
    if (extents[i] <= 0 || room < 0) {
      const bool flat = in.depth == 1 && window.depth.reach() == 1;
      const auto text = [&](const std::array<std::int64_t, 3>& all) {
        return fmt::format("{}", fmt::join(std::span(all).subspan(flat ? 1 : 0), " x "));
      };
      throw std::invalid_argument(fmt::format("a window of {} does not fit an image of {}",
                                              text({sweeps[0].reach(), sweeps[1].reach(), sweeps[2].reach()}),
                                              text(extents)));
    }
    out[i] = room / sweeps[i].stride + 1;
  }
  return {.height = out[1], .width = out[2], .channels = channels, .depth = out[0]};
}

bool all_see_pixels(const Pool& shape) noexcept {
  const auto in = shape.in.extents(), out = shape.out.extents();
  const auto sweeps = shape.window.sweeps();
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    if (!all_see(in[i], sweeps[i], out[i])) return false;
  }
  return true;
}

std::array<std::int64_t, 21> numbers_of(const Convolution& shape) noexcept {
  std::array<std::int64_t, 21> numbers{shape.in.depth,    shape.in.height,    shape.in.width,
                                       shape.in.channels, shape.out.channels, shape.groups};
  std::size_t next = 6;
  for (const Sweep& sweep : shape.window.sweeps()) {
    for (const std::int64_t number : {sweep.size, sweep.stride, sweep.dilation, sweep.before, sweep.after}) {
      numbers[next++] = number;
    }
  }
  return numbers;
}

std::string to_string(const Convolution& shape) {
  const std::size_t first = shape.in.depth == 1 && shape.window.depth.reach() == 1 ? 1 : 0;
  const auto sweeps = shape.window.sweeps();
  const auto text = [&](auto number_of) {
    std::vector<std::int64_t> numbers;
    for (std::size_t i = first; i < sweeps.size(); ++i) numbers.push_back(number_of(i));
    const bool equal = std::ranges::count(numbers, numbers.front()) == static_cast<std::ptrdiff_t>(numbers.size());
    return std::pair(fmt::format("{}", fmt::join(numbers, " x ")), equal ? numbers.front() : 0);
  };
  const auto extents = shape.in.extents();
  const auto [size, same_size] = text([&](std::size_t i) { return sweeps[i].size; });
  const auto [stride, same_stride] = text([&](std::size_t i) { return sweeps[i].stride; });
  const auto [dilation, same_dilation] = text([&](std::size_t i) { return sweeps[i].dilation; });
  const auto [in, same_in] = text([&](std::size_t i) { return extents[i]; });
  const auto short_form = [](const std::string& all, std::int64_t same) {
    return same > 0 ? std::to_string(same) : all;
  };
  std::string result = fmt::format("{} convolution", size);
  if (same_stride != 1) result += ", stride " + short_form(stride, same_stride);
  if (same_dilation != 1) result += ", dilation " + short_form(dilation, same_dilation);
  if (shape.groups > 1) result += fmt::format(", {} groups", shape.groups);
  return result + fmt::format(", of {} x {} to {} channels", in, shape.in.channels, shape.out.channels);
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

bool ImageOperations::is_image(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const {
  return is(tensor, types_.compute, rows, columns) || is(tensor, types_.narrow, rows, columns);
}

void ImageOperations::convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w,
                                          const Tensor& bias, Activation activation, const Tensor& y) {
  const char* const operation = "convolution_forward";
  require_shape(shape, operation);
  require(is_image(x, x.rows, shape.in.elements()), operation, "x must be [batch, in.elements()] in a narrow type");
  require(is(w, types_.compute, shape.patch(), shape.out.channels), operation,
          "w must be [patch, out channels] in the compute type");
  require(absent_or(bias, types_.compute, 1, shape.out.channels), operation, "bias must be [1, out channels]");
  require(is_image(y, x.rows, shape.out.elements()), operation, "y must be [batch, out.elements()] in a narrow type");
  require(apart(x, y), operation, "y must have memory of its own");
  do_convolution_forward(shape, x, w, bias, activation, y);
}

void ImageOperations::convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                           Activation activation, Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const char* const operation = "convolution_backward";
  const std::int64_t batch = d_y.rows;
  require_shape(shape, operation);
  require((!x.present() && !d_w.present() && batch > 0) || is_image(x, batch, shape.in.elements()), operation,
          "x must be [batch, in.elements()] in a narrow type");
  require(is(w, types_.compute, shape.patch(), shape.out.channels), operation,
          "w must be [patch, out channels] in the compute type");
  require(is_image(d_y, batch, shape.out.elements()), operation,
          "d_y must be [batch, out.elements()] in a narrow type");
  require(activation == Activation::none || is(y, d_y.type, batch, shape.out.elements()), operation,
          "y must have the shape and the type of d_y where there is an activation");
  require(absent_or(d_w, types_.master, shape.patch(), shape.out.channels), operation,
          "d_w must have the shape of w and the master type");
  require(absent_or(d_bias, types_.master, 1, shape.out.channels), operation,
          "d_bias must be [1, out channels] in the master type");
  require(!d_x.present() || is_image(d_x, batch, shape.in.elements()), operation,
          "d_x must have the shape of x, in a narrow type");
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
  require_max_pool(shape, "max_pool_forward");
  require(is_image(x, x.rows, shape.in.elements()), "max_pool_forward",
          "x must be [batch, in.elements()] in a narrow type");
  require(is_image(y, x.rows, shape.out.elements()), "max_pool_forward",
          "y must be [batch, out.elements()] in a narrow type");
  require(is(chosen, ElementType::uint8, x.rows, shape.out.elements()), "max_pool_forward",
          "chosen must be uint8 [batch, out.elements()]");
  require(apart(x, y), "max_pool_forward", "y must have memory of its own");
  do_max_pool_forward(shape, x, y, chosen);
}

void ImageOperations::max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) {
  require_max_pool(shape, "max_pool_backward");
  require(is(chosen, ElementType::uint8, d_y.rows, shape.out.elements()), "max_pool_backward",
          "chosen must be uint8 [batch, out.elements()]");
  require(is_image(d_y, d_y.rows, shape.out.elements()), "max_pool_backward",
          "d_y must be [batch, out.elements()] in a narrow type");
  require(is_image(d_x, d_y.rows, shape.in.elements()), "max_pool_backward",
          "d_x must be [batch, in.elements()] in a narrow type");
  require(apart(d_y, d_x), "max_pool_backward", "d_x must have memory of its own");
  do_max_pool_backward(shape, chosen, d_y, d_x);
}

void ImageOperations::average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y) {
  const char* const operation = "average_pool_forward";
  require_shape(shape.pool, operation);
  require(is_image(x, x.rows, shape.pool.in.elements()), operation,
          "x must be [batch, in.elements()] in a narrow type");
  require(is_image(y, x.rows, shape.pool.out.elements()), operation,
          "y must be [batch, out.elements()] in a narrow type");
  require(apart(x, y), operation, "y must have memory of its own");
  do_average_pool_forward(shape, x, y);
}

void ImageOperations::average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "average_pool_backward";
  require_shape(shape.pool, operation);
  require(is_image(d_y, d_y.rows, shape.pool.out.elements()), operation,
          "d_y must be [batch, out.elements()] in a narrow type");
  require(is_image(d_x, d_y.rows, shape.pool.in.elements()), operation,
          "d_x must be [batch, in.elements()] in a narrow type");
  require(apart(d_y, d_x), operation, "d_x must have memory of its own");
  do_average_pool_backward(shape, d_y, d_x);
}

void ImageOperations::linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y) {
  const char* const operation = "linear_upsampling_forward";
  require_shape(shape, operation);
  require(is(x, types_.compute, x.rows, shape.in.elements()) && is(y, types_.compute, x.rows, shape.out.elements()),
          operation, "x must be [batch, in.elements()], y [batch, out.elements()], in the compute type");
  require(apart(x, y), operation, "y must have memory of its own");
  do_linear_upsampling_forward(shape, x, y);
}

void ImageOperations::linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "linear_upsampling_backward";
  require_shape(shape, operation);
  require(
      is(d_y, types_.compute, d_y.rows, shape.out.elements()) && is(d_x, types_.compute, d_y.rows, shape.in.elements()),
      operation, "d_y must be [batch, out.elements()], d_x [batch, in.elements()], in the compute type");
  require(apart(d_y, d_x), operation, "d_x must have memory of its own");
  do_linear_upsampling_backward(shape, d_y, d_x);
}

void ImageOperations::global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  const char* const operation = "global_max_forward";
  require(is_shape(in), operation, "images must have pixels and channels");
  require(is(x, types_.compute, x.rows, in.elements()) && is(y, types_.compute, x.rows, in.channels), operation,
          "x must be [batch, in.elements()], y [batch, channels], in the compute type");
  require(apart(x, y), operation, "y must have memory of its own");
  do_global_max_forward(in, x, y);
}

void ImageOperations::global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                                          const Tensor& d_x) {
  const char* const operation = "global_max_backward";
  require(is_shape(in), operation, "images must have pixels and channels");
  require(is(x, types_.compute, x.rows, in.elements()) && is(y, types_.compute, x.rows, in.channels) &&
              is(d_y, types_.compute, x.rows, in.channels) && is(d_x, types_.compute, x.rows, in.elements()),
          operation, "x and d_x must be [batch, in.elements()], y and d_y [batch, channels], in the compute type");
  require(apart(d_x, x) && apart(d_x, y) && apart(d_x, d_y), operation, "d_x must have memory of its own");
  do_global_max_backward(in, x, y, d_y, d_x);
}

void ImageOperations::group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands) {
  const auto& [x, scale, shift, mean, inverse, y] = operands;
  const char* const operation = "group_norm_forward";
  require_shape(norm, operation);
  require(is_image(x, x.rows, norm.elements()) && is(y, x.type, x.rows, norm.elements()), operation,
          "x and y must be [batch, places * channels] in one narrow type");
  require(is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels), operation,
          "scale and shift must be [1, channels] in the compute type");
  require(is(mean, types_.master, x.rows, norm.groups) && is(inverse, types_.master, x.rows, norm.groups), operation,
          "mean and inverse must be [batch, groups] in the master type");
  require(apart(x, y), operation, "y must have memory of its own");
  if (x.rows > 0) do_group_norm_forward(norm, operands);
}

void ImageOperations::group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                                          Accumulate accumulate) {
  const auto& [x, d_y, mean, inverse, scale, d_scale, d_shift, sums, d_x] = operands;
  const char* const operation = "group_norm_backward";
  require_shape(norm, operation);
  require(is_image(x, x.rows, norm.elements()) && is(d_y, x.type, x.rows, norm.elements()) &&
              absent_or(d_x, x.type, x.rows, norm.elements()),
          operation, "x, d_y and d_x must be [batch, places * channels] in one narrow type");
  require(is(mean, types_.master, x.rows, norm.groups) && is(inverse, types_.master, x.rows, norm.groups), operation,
          "mean and inverse must be [batch, groups] in the master type");
  require(is(scale, types_.compute, 1, norm.channels), operation, "scale must be [1, channels] in the compute type");
  require(absent_or(d_scale, types_.master, 1, norm.channels) && absent_or(d_shift, types_.master, 1, norm.channels),
          operation, "d_scale and d_shift must be [1, channels] in the master type");
  require(is(sums, ElementType::float64, x.rows, 2 * (norm.channels + norm.groups)), operation,
          "sums must be float64 [batch, 2 * (channels + groups)]");
  require(apart(d_x, x) && same_or_apart(d_x, d_y), operation,
          "d_x must have memory of its own, or all of that of d_y");
  do_group_norm_backward(norm, operands, accumulate);
}

void ImageOperations::softmax_forward(const Tensor& x, const Tensor& y) {
  require(is(x, types_.compute, x.rows, x.columns) && is(y, types_.compute, x.rows, x.columns) && x.columns > 0,
          "softmax_forward", "x and y must have one shape and the compute type");
  require(same_or_apart(x, y), "softmax_forward", "y must have memory of its own, or all of that of x");
  if (x.rows > 0) do_softmax_forward(x, y);
}

void ImageOperations::softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  require(is(y, types_.compute, y.rows, y.columns) && is(d_y, types_.compute, y.rows, y.columns) &&
              is(d_x, types_.compute, y.rows, y.columns) && y.columns > 0,
          "softmax_backward", "y, d_y and d_x must have one shape and the compute type");
  require(apart(d_x, y) && same_or_apart(d_x, d_y), "softmax_backward",
          "d_x must have memory of its own, or all of that of d_y");
  if (y.rows > 0) do_softmax_backward(y, d_y, d_x);
}

void ImageOperations::multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  require(is(a, types_.compute, a.rows, a.columns) && is(y, types_.compute, a.rows, a.columns), "multiply",
          "a and y must have one shape and the compute type");
  require(is(b, types_.compute, b.rows, a.columns) && (b.rows > 0 ? a.rows % b.rows == 0 : a.rows == 0), "multiply",
          "b must have the columns of a, and rows that divide its rows");
  require(same_or_apart(a, y) && (apart(b, y) || b.data == y.data), "multiply",
          "y must have memory of its own, or all of that of a");
  if (a.count() > 0) do_multiply(a, b, y);
}

void ImageOperations::multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b) {
  require(is(a, types_.compute, a.rows, a.columns) && is(d_y, types_.compute, a.rows, a.columns), "multiply_sums",
          "a and d_y must have one shape and the compute type");
  require(is(d_b, types_.compute, d_b.rows, a.columns) && (d_b.rows > 0 ? a.rows % d_b.rows == 0 : a.rows == 0),
          "multiply_sums", "d_b must have the columns of a, and rows that divide its rows");
  require(apart(d_b, a) && apart(d_b, d_y), "multiply_sums", "d_b must have memory of its own");
  if (a.count() > 0) do_multiply_sums(a, d_y, d_b);
}

void ImageOperations::copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y) {
  const char* const operation = "copy_strided";
  std::int64_t from_least = copy.from_first, from_greatest = copy.from_first;
  std::int64_t to_least = copy.to_first, to_greatest = copy.to_first;
  for (std::size_t i = 0; i < copy.extents.size(); ++i) {
    require(copy.extents[i] > 0, operation, "extents must be positive");
    const std::int64_t from = (copy.extents[i] - 1) * copy.from_steps[i], to = (copy.extents[i] - 1) * copy.to_steps[i];
    (from < 0 ? from_least : from_greatest) += from;
    (to < 0 ? to_least : to_greatest) += to;
  }
  require(from_least >= 0 && from_greatest < copy.from_elements && to_least >= 0 && to_greatest < copy.to_elements,
          operation, "the part must lie within the samples");
  require(is(x, types_.compute, x.rows, copy.from_elements) && is(y, types_.compute, x.rows, copy.to_elements),
          operation, "x must be [batch, from_elements], y [batch, to_elements], in the compute type");
  require(apart(x, y), operation, "y must have memory of its own");
  if (x.rows > 0) do_copy_strided(copy, x, y);
}

void ImageOperations::bias_forward(const Tensor& bias, Activation activation, const Tensor& y) {
  require(is_image(y, y.rows, y.columns), "bias_forward", "y must be [rows, channels] in a narrow type");
  require(absent_or(bias, types_.compute, 1, y.columns), "bias_forward", "bias must be [1, channels]");
  do_bias_forward(bias, activation, y);
}

void ImageOperations::bias_backward(Activation activation, const Tensor& y, const Tensor& d_y, Accumulate accumulate,
                                    const Tensor& d_bias) {
  const char* const operation = "bias_backward";
  require(is_image(d_y, d_y.rows, d_y.columns), operation, "d_y must be [rows, channels] in a narrow type");
  require(activation == Activation::none || is(y, d_y.type, d_y.rows, d_y.columns), operation,
          "y must have the shape and the type of d_y where there is an activation");
  require(absent_or(d_bias, types_.master, 1, d_y.columns), operation, "d_bias must be [1, channels]");
  do_bias_backward(activation, y, d_y, accumulate, d_bias);
}

void ImageOperations::global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  require(is_shape(in), "global_average_forward", "images must have pixels and channels");
  require(is_image(x, x.rows, in.elements()) && is_image(y, x.rows, in.channels), "global_average_forward",
          "x must be [batch, in.elements()], y [batch, channels], in a narrow type");
  require(apart(x, y), "global_average_forward", "y must have memory of its own");
  do_global_average_forward(in, x, y);
}

void ImageOperations::global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  require(is_shape(in), "global_average_backward", "images must have pixels and channels");
  require(is_image(d_y, d_y.rows, in.channels) && is_image(d_x, d_y.rows, in.elements()), "global_average_backward",
          "d_y must be [batch, channels], d_x [batch, in.elements()], in a narrow type");
  require(apart(d_y, d_x), "global_average_backward", "d_x must have memory of its own");
  do_global_average_backward(in, d_y, d_x);
}

void ImageOperations::response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                                     const Tensor& y) {
  const char* const operation = "response_normalization_forward";
  require_shape(norm, operation);
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(y, x.type, x.rows, x.columns), operation, "y must have the shape and the type of x");
  require(apart(x, y), operation, "y must have memory of its own");
  do_response_normalization_forward(norm, x, y);
}

void ImageOperations::response_normalization_backward(const ResponseNormalization& norm, const Tensor& x,
                                                      const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "response_normalization_backward";
  require_shape(norm, operation);
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(y, x.type, x.rows, x.columns) && is(d_y, x.type, x.rows, x.columns) && is(d_x, x.type, x.rows, x.columns),
          operation, "y, d_y and d_x must have the shape and the type of x");
  require(apart(d_x, x) && apart(d_x, y) && same_or_apart(d_x, d_y), operation,
          "d_x must have memory of its own, or all of that of d_y");
  do_response_normalization_backward(norm, x, y, d_y, d_x);
}

void ImageOperations::subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                        const Tensor& x, const Tensor& y) {
  require_subsampling(in, out, stride, "subsample_forward");
  require(is_image(x, x.rows, in.elements()) && is(y, x.type, x.rows, out.elements()), "subsample_forward",
          "x must be [batch, in.elements()], y [batch, out.elements()], in one narrow type");
  require(apart(x, y), "subsample_forward", "y must have memory of its own");
  do_subsample_forward(in, out, stride, x, y);
}

void ImageOperations::subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                         const Tensor& d_y, const Tensor& d_x) {
  require_subsampling(in, out, stride, "subsample_backward");
  require(is_image(d_y, d_y.rows, out.elements()) && is(d_x, d_y.type, d_y.rows, in.elements()), "subsample_backward",
          "d_y must be [batch, out.elements()], d_x [batch, in.elements()], in one narrow type");
  require(apart(d_y, d_x), "subsample_backward", "d_x must have memory of its own");
  do_subsample_backward(in, out, stride, d_y, d_x);
}

void ImageOperations::batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  require_shape(norm, "batch_norm_sums");
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), "batch_norm_sums",
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels + 1), "batch_norm_sums",
          "sums must be float64 [1, 2 * channels + 1]");
  do_batch_norm_sums(norm, x, sums);
}

void ImageOperations::batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  const auto& [x, sums, scale, shift, residual, mean, inverse, y] = operands;
  const char* const operation = "batch_norm_forward";
  require_shape(norm, operation);
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(sums, ElementType::float64, 1, 2 * norm.channels + 1), operation,
          "sums must be float64 [1, 2 * channels + 1]");
  require(is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels), operation,
          "scale and shift must be [1, channels] in the compute type");
  require(absent_or(residual, x.type, x.rows, x.columns), operation, "residual must have the shape and the type of x");
  require(is(mean, types_.master, 1, norm.channels) && is(inverse, types_.master, 1, norm.channels), operation,
          "mean and inverse must be [1, channels] in the master type");
  require(is(y, x.type, x.rows, x.columns), operation, "y must have the shape and the type of x");
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
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(mean, types_.compute, 1, norm.channels) && is(variance, types_.compute, 1, norm.channels) &&
              is(scale, types_.compute, 1, norm.channels) && is(shift, types_.compute, 1, norm.channels),
          operation, "mean, variance, scale and shift must be [1, channels] in the compute type");
  require(absent_or(residual, x.type, x.rows, x.columns), operation, "residual must have the shape and the type of x");
  require(is(y, x.type, x.rows, x.columns), operation, "y must have the shape and the type of x");
  require(same_or_apart(x, y) && same_or_apart(residual, y), operation,
          "y must have memory of its own, or all of that of x or of the residual");
  do_batch_norm_inference(norm, operands);
}

void ImageOperations::batch_norm_inference_backward(const BatchNorm& norm,
                                                    const BatchNormInferenceBackwardOperands& operands) {
  const auto& [y, d_y, variance, scale, d_x] = operands;
  const char* const operation = "batch_norm_inference_backward";
  require_shape(norm, operation);
  require(is_image(d_y, d_y.rows, d_y.columns) && has_channels(d_y, norm.channels), operation,
          "d_y must be [batch, pixels * channels] in a narrow type");
  require(!norm.relu || is(y, d_y.type, d_y.rows, d_y.columns), operation,
          "y must have the shape and the type of d_y where there is a relu");
  require(is(variance, types_.compute, 1, norm.channels) && is(scale, types_.compute, 1, norm.channels), operation,
          "variance and scale must be [1, channels] in the compute type");
  require(is(d_x, d_y.type, d_y.rows, d_y.columns), operation, "d_x must have the shape and the type of d_y");
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
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(d_y, x.type, x.rows, x.columns), operation, "d_y must have the shape and the type of x");
  require(!norm.relu || recomputed || is(y, x.type, x.rows, x.columns), operation,
          "y must have the shape and the type of x where there is a relu");
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
  require(is_image(x, x.rows, x.columns) && has_channels(x, norm.channels), operation,
          "x must be [batch, pixels * channels] in a narrow type");
  require(is(d_y, x.type, x.rows, x.columns) && is(d_x, x.type, x.rows, x.columns), operation,
          "d_y and d_x must have the shape and the type of x");
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
