/// \file
/// Operations on images, volumes and series. A row of a tensor is one image [height, width, channels], volume [depth,
/// height, width, channels] or series [width, channels], channels fastest (NHWC), in the compute type; filters are
/// [kernel depth, kernel height, kernel width, in channels, out channels] row-major, which is the [inputs, outputs]
/// matrix of a dense layer over a patch. No operation changes this layout.
///
/// A device may have a narrow type besides the compute type (OperationTypes::narrow). Convolutions, biases, batch and
/// group norms, pools, global averages, response normalisations and subsamplings then accept values and gradients of
/// either type. Biases, norms and subsamplings need all of one type. The types of sums and statistics do not change.
///
/// The conventions of backend.hpp hold: operations are enqueued; parameter gradients are written or added, in the
/// master type; activation gradients are written, except where noted; sums have a fixed order. The public functions
/// check all shapes. Every operation accepts an empty batch.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/augmentation.hpp"
#include "model/operation_types.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// A sliding window along one direction.
struct Sweep {
  std::int64_t size = 1;               ///< positions of the window
  std::int64_t stride = 1;             ///< between windows
  std::int64_t dilation = 1;           ///< between positions of a window
  std::int64_t before = 0, after = 0;  ///< padding: zeros for a convolution, ignored by a pool
  /// Pixels from the first to the last position of a window, both included.
  std::int64_t reach() const noexcept { return (size - 1) * dilation + 1; }
  bool operator==(const Sweep&) const = default;
};
/// A window that slides over an image, in a convolution or a pool.
struct Sliding {
  Sweep depth = {}, height = {}, width = {};
  /// In the order of ImageShape::extents().
  std::array<Sweep, 3> sweeps() const noexcept { return {depth, height, width}; }
  std::int64_t positions() const noexcept { return depth.size * height.size * width.size; }
  bool operator==(const Sliding&) const = default;
};
/// Returns the window with padding such that each output extent is ceil(in / stride); an odd pixel is added at the end.
/// TensorFlow calls this "SAME".
Sliding same_padding(const ImageShape& in, Sliding window);
/// A square window along height and width, with such padding.
Sliding same_padding(const ImageShape& in, std::int64_t size, std::int64_t stride);
/// The same padding on all sides of height and width.
Sliding even_padding(std::int64_t size, std::int64_t stride, std::int64_t padding);
/// floor((extent + padding - reach) / stride) + 1 in each direction. Throws std::invalid_argument if the window does
/// not fit.
ImageShape slide(const ImageShape& in, const Sliding& window, std::int64_t channels);

/// Shapes of one convolution. out = slide(in, window, out channels).
struct Convolution {
  ImageShape in, out;
  Sliding window;
  /// Number of groups of consecutive channels. A group of output channels reads only the same group of input channels.
  std::int64_t groups = 1;
  /// Input channels that an output channel reads.
  std::int64_t channels_read() const noexcept { return in.channels / groups; }
  /// Rows of the filter matrix; its columns are the output channels.
  std::int64_t patch() const noexcept { return window.positions() * channels_read(); }
  bool operator==(const Convolution&) const = default;
};
/// Numbers that identify a convolution.
std::array<std::int64_t, 21> numbers_of(const Convolution& shape) noexcept;
/// "3 x 3 convolution, stride 2, of 8 x 8 x 16 to 32 channels"
std::string to_string(const Convolution& shape);
struct Pool {
  ImageShape in, out;
  Sliding window;
};

/// A pool whose outputs are sums over windows, divided.
struct AveragePool {
  /// The divisor: pixels in the window without padding, all positions of the window, or 1.
  enum class Divisor { seen, positions, one };
  Pool pool;
  Divisor divisor = Divisor::seen;
};
/// Enlargement by whole factors with linear interpolation (formulas/upsampling.hpp): linear for a series, bilinear for
/// an image, trilinear for a volume.
struct LinearUpsampling {
  ImageShape in, out;  ///< extents of out are multiples of those of in; equal channels
  /// In the order of ImageShape::extents().
  std::array<std::int64_t, 3> factors() const noexcept {
    return {out.depth / in.depth, out.height / in.height, out.width / in.width};
  }
};
/// Largest extent of the output of a linear upsampling.
inline constexpr std::int64_t kMaxUpsampledExtent = std::int64_t{1} << 28;
/// Normalisation over all positions of a sample and a group of consecutive channels (Wu & He 2018). With as many groups
/// as channels it is instance normalisation (Ulyanov et al. 2016).
struct GroupNorm {
  std::int64_t places = 0, channels = 0;  ///< per sample
  std::int64_t groups = 1;
  float epsilon = 1e-5f;
  std::int64_t elements() const noexcept { return places * channels; }
};
struct GroupNormForwardOperands {
  Tensor x, scale, shift, mean, inverse, y;
};
struct GroupNormBackwardOperands {
  Tensor x, d_y, mean, inverse, scale;
  Tensor d_scale = {}, d_shift = {};  ///< may be absent
  Tensor sums, d_x;
};

/// Copy of a strided part of each sample: element (i0, i1 ...) is read at from_first + i0 * from_steps[0] + ... of the
/// source and written at to_first + i0 * to_steps[0] + ... of the target.
struct StridedCopy {
  std::array<std::int64_t, 5> extents{1, 1, 1, 1, 1}, from_steps{}, to_steps{};
  std::int64_t from_first = 0, to_first = 0;
  std::int64_t from_elements = 0, to_elements = 0;  ///< per sample
  /// The copy in the other direction.
  StridedCopy reversed() const noexcept {
    return {.extents = extents,
            .from_steps = to_steps,
            .to_steps = from_steps,
            .from_first = to_first,
            .to_first = from_first,
            .from_elements = to_elements,
            .to_elements = from_elements};
  }
};

/// Largest number of positions in the window of a max pool: a position fits one byte.
inline constexpr std::int64_t kMaxPoolPositions = 256;
/// True if each window covers at least one pixel.
bool all_see_pixels(const Pool& shape) noexcept;

/// y[c] = x[c] / (bias + alpha * sum of x[j]^2 over |j - c| <= radius)^beta, across the channels of a pixel
/// (Krizhevsky, Sutskever & Hinton 2012, section 3.3; tf.nn.lrn).
struct ResponseNormalization {
  std::int64_t channels = 0;
  std::int64_t radius = 4;
  float bias = 1, alpha = 0.001f / 9, beta = 0.75f;
};

/// Batch normalisation over rows and pixels, per channel (Ioffe & Szegedy 2015), with optional residual and relu.
struct BatchNorm {
  std::int64_t channels = 0;
  float epsilon = 1e-5f;
  bool relu = false;  ///< after the addition of the residual
};

/// Operands of batch normalisation; the operations document them.
struct BatchNormForwardOperands {
  Tensor x, sums, scale, shift;
  Tensor residual = {};  ///< may be absent
  Tensor mean, inverse, y;
};
struct BatchNormInferenceOperands {
  Tensor x, mean, variance, scale, shift;
  Tensor residual = {};  ///< may be absent
  Tensor y;
};
struct BatchNormInferenceBackwardOperands {
  Tensor y, d_y, variance, scale, d_x;
};
struct BatchNormBackwardSumsOperands {
  Tensor x;
  Tensor y = {};  ///< absent without relu, or if scale and shift are present
  Tensor d_y, mean, inverse;
  Tensor scale = {}, shift = {};      ///< present if the relu is recomputed (recomputes_relu())
  Tensor d_scale = {}, d_shift = {};  ///< may be absent
  Tensor sums;
};
struct BatchNormBackwardOperands {
  Tensor x, d_y, mean, inverse, scale;
  Tensor shift = {};  ///< present if the relu is recomputed
  Tensor forward_sums, sums, d_x;
};

/// Virtual functions behind the checked operations of ImageOperations, in their order. A device with all of them
/// declares them by LOCKSTEP_IMAGE_OPERATIONS(void, override). An operation that a device lacks throws
/// std::logic_error.
#define LOCKSTEP_IMAGE_OPERATIONS(VOID, BODY)                                                                        \
  VOID do_augment(const Tensor&, const Tensor&, const Augmentation&, const Tensor&) BODY;                            \
  VOID do_convolution_forward(const Convolution&, const Tensor&, const Tensor&, const Tensor&, Activation,           \
                              const Tensor&) BODY;                                                                   \
  VOID do_convolution_backward(const Convolution&, const LinearBackwardOperands&, Activation, Accumulate) BODY;      \
  VOID do_max_pool_forward(const Pool&, const Tensor&, const Tensor&, const Tensor&) BODY;                           \
  VOID do_max_pool_backward(const Pool&, const Tensor&, const Tensor&, const Tensor&) BODY;                          \
  VOID do_average_pool_forward(const AveragePool&, const Tensor&, const Tensor&) BODY;                               \
  VOID do_average_pool_backward(const AveragePool&, const Tensor&, const Tensor&) BODY;                              \
  VOID do_linear_upsampling_forward(const LinearUpsampling&, const Tensor&, const Tensor&) BODY;                     \
  VOID do_linear_upsampling_backward(const LinearUpsampling&, const Tensor&, const Tensor&) BODY;                    \
  VOID do_global_max_forward(const ImageShape&, const Tensor&, const Tensor&) BODY;                                  \
  VOID do_global_max_backward(const ImageShape&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) BODY;   \
  VOID do_group_norm_forward(const GroupNorm&, const GroupNormForwardOperands&) BODY;                                \
  VOID do_group_norm_backward(const GroupNorm&, const GroupNormBackwardOperands&, Accumulate) BODY;                  \
  VOID do_softmax_forward(const Tensor&, const Tensor&) BODY;                                                        \
  VOID do_softmax_backward(const Tensor&, const Tensor&, const Tensor&) BODY;                                        \
  VOID do_multiply(const Tensor&, const Tensor&, const Tensor&) BODY;                                                \
  VOID do_multiply_sums(const Tensor&, const Tensor&, const Tensor&) BODY;                                           \
  VOID do_copy_strided(const StridedCopy&, const Tensor&, const Tensor&) BODY;                                       \
  VOID do_bias_forward(const Tensor&, Activation, const Tensor&) BODY;                                               \
  VOID do_bias_backward(Activation, const Tensor&, const Tensor&, Accumulate, const Tensor&) BODY;                   \
  VOID do_global_average_forward(const ImageShape&, const Tensor&, const Tensor&) BODY;                              \
  VOID do_global_average_backward(const ImageShape&, const Tensor&, const Tensor&) BODY;                             \
  VOID do_response_normalization_forward(const ResponseNormalization&, const Tensor&, const Tensor&) BODY;           \
  VOID do_response_normalization_backward(const ResponseNormalization&, const Tensor&, const Tensor&, const Tensor&, \
                                          const Tensor&) BODY;                                                       \
  VOID do_subsample_forward(const ImageShape&, const ImageShape&, std::int64_t, const Tensor&, const Tensor&) BODY;  \
  VOID do_subsample_backward(const ImageShape&, const ImageShape&, std::int64_t, const Tensor&, const Tensor&) BODY; \
  VOID do_batch_norm_sums(const BatchNorm&, const Tensor&, const Tensor&) BODY;                                      \
  VOID do_batch_norm_forward(const BatchNorm&, const BatchNormForwardOperands&) BODY;                                \
  VOID do_batch_norm_statistics(const BatchNorm&, const Tensor&, double, Accumulate, const Tensor&, const Tensor&)   \
      BODY;                                                                                                          \
  VOID do_batch_norm_inference(const BatchNorm&, const BatchNormInferenceOperands&) BODY;                            \
  VOID do_batch_norm_inference_backward(const BatchNorm&, const BatchNormInferenceBackwardOperands&) BODY;           \
  VOID do_batch_norm_backward_sums(const BatchNorm&, const BatchNormBackwardSumsOperands&, Accumulate) BODY;         \
  VOID do_batch_norm_backward(const BatchNorm&, const BatchNormBackwardOperands&) BODY;

class ImageOperations {
 public:
  virtual ~ImageOperations() = default;
  ImageOperations(const ImageOperations&) = delete;
  ImageOperations& operator=(const ImageOperations&) = delete;

  /// Turns stored samples into the network's input (augmentation.hpp has the formulas). images: uint8, float32 or
  /// float64 [B, spec.in.elements()]; keys: uint64 [B, 1]; absent: the deterministic form for evaluation. out: [B,
  /// spec.out.elements()].
  void augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out);

  /// y = act(convolution of x with w + bias). bias [1, out channels] may be absent. w: [patch, out channels], compute
  /// type.
  void convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                           Activation activation, const Tensor& y);
  /// Like Backend::linear_backward: d_y is overwritten with the gradient before the activation (uses y); d_bias and d_x
  /// may be absent. x may be absent if d_w is.
  void convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                            Accumulate accumulate);
  /// True if this device can add the image gradient of such a convolution to an existing gradient in the same pass over
  /// memory.
  virtual bool adds_image_gradient(const Convolution&) const noexcept { return false; }
  /// d_x += the gradient that convolution_backward() would write. Only if adds_image_gradient(shape).
  void add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x);

  /// chosen: uint8 [B, out.elements()]: row-major position in the window of the first greatest value; a NaN counts as
  /// the greatest. Windows ignore padding; each must cover at least one pixel.
  void max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen);
  void max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x);
  /// Padding counts as nothing, or, with Divisor::positions, as zero. Each window must see a pixel. Sums in the order
  /// of the window's positions.
  void average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y);
  void average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x);
  /// x [B, in.elements()], y [B, out.elements()].
  void linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y);
  /// d_x is the sum over the output pixels that read an input pixel, in ascending order of plane, row and column.
  void linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y, const Tensor& d_x);
  /// y[c] = maximum over all pixels; a NaN counts as the greatest. x [B, in.elements()], y [B, in.channels].
  void global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y);
  /// The gradient goes to the first pixel that equals y.
  void global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                           const Tensor& d_x);
  /// Writes mean and inverse = 1 / deviation (master type [B, groups]) of each group of each sample, with the biased
  /// variance, and y = scale * (x - mean) / deviation + shift. x, y [B, places * channels]; scale, shift: compute type
  /// [1, channels].
  void group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands);
  /// sums: float64 [B, 2 * (channels + groups)], scratch memory. d_scale, d_shift (master type) = or +=; d_x may be the
  /// same tensor as d_y.
  void group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands, Accumulate accumulate);
  /// y = exp(x) / sum of exp(x) in each row. y may be the same tensor as x.
  void softmax_forward(const Tensor& x, const Tensor& y);
  /// d_x = y * (d_y - sum of y * d_y); d_x may be the same tensor as d_y.
  void softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x);
  /// y = a * b. If a has n times as many rows as b, each row of b multiplies n consecutive rows of a.
  void multiply(const Tensor& a, const Tensor& b, const Tensor& y);
  /// d_b = sum of a * d_y over the rows of a that each row of b multiplies.
  void multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b);
  /// Copies a part of each sample of x [B, from_elements] to y [B, to_elements]; the rest of y does not change.
  void copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y);
  /// y = act(y + bias) for y [rows, channels]; bias [1, channels] may be absent.
  void bias_forward(const Tensor& bias, Activation activation, const Tensor& y);
  /// d_y becomes the gradient before the activation (uses y, which `none` ignores); d_bias (master type [1, channels],
  /// may be absent) = or += its column sums.
  void bias_backward(Activation activation, const Tensor& y, const Tensor& d_y, Accumulate accumulate,
                     const Tensor& d_bias);
  /// y[c] = mean over all pixels: x [B, in.elements()], y [B, in.channels].
  void global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y);
  void global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x);

  void response_normalization_forward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y);
  /// Takes x and y of the forward pass; d_x may be the same tensor as d_y.
  void response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                       const Tensor& d_y, const Tensor& d_x);

  /// The parameter-free shortcut of narrow residual networks (He et al. 2015, option A): takes every stride-th pixel
  /// and adds zero channels, half of them before and half after the input's. out.channels - in.channels is even and not
  /// negative; out.height = ceil(in.height / stride).
  void subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                         const Tensor& y);
  /// d_x += (not =), since the other branch has already written its gradient.
  void subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& d_y,
                          const Tensor& d_x);

  // Batch normalisation, in parts, so that the caller can sum `sums` over ranks in between. x: [B, pixels * channels].

  /// sums: float64 [1, 2 channels + 1] = sum of x, sum of x^2 per channel (in double), and the number of values per
  /// channel (rows * pixels).
  void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums);
  /// Writes mean and inverse = 1 / deviation (master type [1, channels]), from the sums, with the biased variance, and
  /// y = relu?(scale * (x - mean) / deviation + shift + residual). residual (shape of x) may be absent, or the same
  /// tensor as y. scale, shift: compute type [1, channels].
  void batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands);
  /// d_mean, d_variance (master type [1, channels]) = or += weight * mean, weight * unbiased variance, from the sums:
  /// the input of running statistics (parameters.hpp).
  void batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight, Accumulate accumulate,
                             const Tensor& d_mean, const Tensor& d_variance);
  /// y from fixed statistics (compute type [1, channels]). y may be the same tensor as x or as residual.
  void batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands);
  /// Backward of batch_norm_inference(): d_y is overwritten with the gradient before the relu (0 unless y > 0), which
  /// is also the residual's gradient; d_x = scale * d_y / sqrt(variance + epsilon). d_x may be the same tensor as d_y.
  void batch_norm_inference_backward(const BatchNorm& norm, const BatchNormInferenceBackwardOperands& operands);
  /// True if the two operations below can take scale and shift instead of y, without a residual. They then derive the
  /// mask of the relu from x and do not write d_y, which saves a pass over memory.
  virtual bool recomputes_relu() const noexcept { return false; }
  /// d_y is overwritten with the gradient before the relu (0 unless y > 0), which is also the residual's gradient.
  /// sums: float64 [1, 2 channels] = sum of that d_y, sum of d_y * (x - mean) * inverse. d_scale and d_shift (may be
  /// absent) = or +=, from this rank's samples alone.
  void batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                Accumulate accumulate);
  /// d_x = scale * inverse * (d_y - (sums[c] + x_hat * sums[channels + c]) / count); count: last element of
  /// forward_sums. d_x may be the same tensor as d_y.
  void batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands);

 protected:
  explicit ImageOperations(const OperationTypes& types) : types_(types) {}
  const OperationTypes& types() const noexcept { return types_; }

 private:
  /// True if the tensor has this shape and the compute type or the narrow type.
  bool is_image(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const;

  LOCKSTEP_IMAGE_OPERATIONS(virtual void, { missing_operation(__func__); })
  virtual void do_add_image_gradient(const Convolution&, const Tensor& /*w*/, const Tensor& /*d_y*/,
                                     const Tensor& /*d_x*/) {
    missing_operation(__func__);
  }

  OperationTypes types_;
};

}  // namespace lockstep::model
