/// \file
/// Operations on images, volumes and series. A row of a tensor is one image [height, width, channels], volume [depth,
/// height, width, channels] or series [width, channels], channels fastest (NHWC), in the compute type; filters are
/// [kernel depth, kernel height, kernel width, in channels, out channels] row-major, which is the [inputs, outputs]
/// matrix of a dense layer over a patch. One layout from end to end.
///
/// A device may have a narrow type besides the compute type (OperationTypes::images). Convolutions, biases, norms of
/// batches and groups, pools, global averages, response normalisations and subsamplings then take values and gradients
/// of either type; biases, norms and subsamplings take all of one type. Sums and statistics stay as they are.
///
/// The conventions of backend.hpp hold: operations are enqueued, parameter gradients are written or added in the master
/// type, activation gradients always written, every sum has a fixed order, all shapes are checked here, and an empty
/// batch is welcome everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/augmentation.hpp"
#include "model/operation_types.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// A window along one direction.
struct Sweep {
  std::int64_t size = 1;               ///< positions of the window
  std::int64_t stride = 1;             ///< between windows
  std::int64_t dilation = 1;           ///< between positions of a window
  std::int64_t before = 0, after = 0;  ///< padding: zeros for a convolution, absent for a pool
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
/// The window with the padding that makes the output ceil(in / stride) large, the odd pixel behind: "SAME" of
/// TensorFlow.
Sliding same_padding(const ImageShape& in, Sliding window);
/// Such a window along height and width.
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
  /// The channels of in and of out form so many runs of equal length; a run of out reads the same run of in alone.
  std::int64_t groups = 1;
  /// Input channels that an output channel reads.
  std::int64_t channels_read() const noexcept { return in.channels / groups; }
  /// Rows of the filter matrix; its columns are the output channels.
  std::int64_t patch() const noexcept { return window.positions() * channels_read(); }
  bool operator==(const Convolution&) const = default;
};
/// Numbers that tell a convolution from all others.
std::array<std::int64_t, 21> numbers_of(const Convolution& shape) noexcept;
/// "3 x 3 convolution, stride 2, of 8 x 8 x 16 to 32 channels"
std::string to_string(const Convolution& shape);
struct Pool {
  ImageShape in, out;
  Sliding window;
};

/// A pool whose outputs are sums of windows, divided.
struct AveragePool {
  /// The divisor: pixels that the window sees, all its positions, or 1.
  enum class Divisor { seen, positions, one };
  Pool pool;
  Divisor divisor = Divisor::seen;
};
/// Enlargement by whole factors with linear interpolation (formulas/upsampling.hpp): of a series linear, of an image
/// bilinear, of a volume trilinear.
struct LinearUpsampling {
  ImageShape in, out;  ///< each extent of out is a multiple of that of in; the same channels
  /// In the order of ImageShape::extents().
  std::array<std::int64_t, 3> factors() const noexcept {
    return {out.depth / in.depth, out.height / in.height, out.width / in.width};
  }
};
/// Largest extent of the output of a linear upsampling.
inline constexpr std::int64_t kMaxUpsampledExtent = std::int64_t{1} << 28;
/// Normalisation over the places of a sample and runs of its channels (Wu & He 2018); with as many groups as channels
/// instance normalisation (Ulyanov et al. 2016).
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

/// A part of each sample, in an order: element (i0, i1 ...) comes from from_first + i0 * from_steps[0] + ... of the one
/// sample and goes to to_first + i0 * to_steps[0] + ... of the other.
struct StridedCopy {
  std::array<std::int64_t, 5> extents{1, 1, 1, 1, 1}, from_steps{}, to_steps{};
  std::int64_t from_first = 0, to_first = 0;
  std::int64_t from_elements = 0, to_elements = 0;  ///< per sample
  /// The way back.
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

/// Largest number of positions in the window of a max pool: they fit one byte.
inline constexpr std::int64_t kMaxPoolPositions = 256;
/// Tells whether each window sees a pixel.
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

/// Operands of the steps of batch normalisation; the operations document them.
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

/// The operations of a device behind the checked ones of ImageOperations, in their order. A device that has all of them
/// declares them by (void, override). One that a device lacks throws std::logic_error.
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
  /// float64 [B, spec.in.elements()]; keys: uint64 [B, 1], or empty: the deterministic form for evaluation. out: [B,
  /// spec.out.elements()].
  void augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out);

  /// y = act(convolution of x with w, + bias). bias [1, out channels] may be empty. w: [patch, out channels], compute
  /// type.
  void convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                           Activation activation, const Tensor& y);
  /// As linear_backward: d_y is overwritten with the gradient before the activation (by y); d_bias and d_x may be
  /// empty. x may be absent if d_w is.
  void convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                            Accumulate accumulate);
  /// Tells whether this device can add the image gradient of such a convolution to an existing one in the same pass,
  /// which saves a pass of reading and writing.
  virtual bool adds_image_gradient(const Convolution&) const noexcept { return false; }
  /// d_x += the gradient that convolution_backward() writes; only for shapes of adds_image_gradient().
  void add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x);

  /// chosen: uint8 [B, out.elements()]: the position in the window, row-major, of the first greatest value.
  /// NaN wins. Windows see only pixels of the image; each must see at least one.
  void max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen);
  void max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x);
  /// Padding counts as nothing, or, with Divisor::positions, as zero. Each window must see a pixel. Sums in the order
  /// of the window's positions.
  void average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y);
  void average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x);
  /// x [B, in.elements()], y [B, out.elements()].
  void linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y);
  /// Sums over the places that read one, their planes, rows and columns ascending.
  void linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y, const Tensor& d_x);
  /// y[c] = the greatest of all pixels; NaN wins: x [B, in.elements()], y [B, in.channels].
  void global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y);
  /// The gradient goes to the first pixel that is equal to y.
  void global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                           const Tensor& d_x);
  /// mean and deviation^-1 (master type [B, groups] each) of the groups of each sample, the biased variance;
  /// y = scale * (x - mean) / deviation + shift. x, y [B, places * channels]; scale, shift: compute type [1, channels].
  void group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands);
  /// sums: float64 [B, 2 * (channels + groups)], scratch memory. d_scale, d_shift (master type) = or +=; d_x may be the
  /// same tensor as d_y.
  void group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands, Accumulate accumulate);
  /// y = exp(x) / sum of exp(x) in each row. y may be the same tensor as x.
  void softmax_forward(const Tensor& x, const Tensor& y);
  /// d_x = y * (d_y - sum of y * d_y); d_x may be the same tensor as d_y.
  void softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x);
  /// y = a * b. A row of b serves as many rows of a, one after the other, as there are more of them.
  void multiply(const Tensor& a, const Tensor& b, const Tensor& y);
  /// d_b = the sum of a * d_y over the rows that a row of b serves.
  void multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b);
  /// Copies a part of each sample of x [B, from_elements] to y [B, to_elements]; the rest of y stays.
  void copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y);
  /// y = act(y + bias) for y [rows, channels]; bias [1, channels] may be absent.
  void bias_forward(const Tensor& bias, Activation activation, const Tensor& y);
  /// d_y becomes the gradient before the activation (by y, which `none` ignores); d_bias (master type [1, channels],
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

  /// The parameter-free shortcut of narrow residual networks (He et al. 2015, option A): every stride-th pixel, the new
  /// channels zero, half of them before and half behind the old ones. out.channels >= in.channels, an even difference;
  /// out.height = ceil(in.height / stride).
  void subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                         const Tensor& y);
  /// d_x += (not =): the other branch has already written its gradient.
  void subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& d_y,
                          const Tensor& d_x);

  // Batch normalisation in steps, so that the caller may sum `sums` over ranks in between. x: [B, pixels * channels].

  /// sums: float64 [1, 2 channels + 1] = sum of x, sum of x^2 per channel (in double), and the number of values per
  /// channel (rows * pixels).
  void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums);
  /// mean and deviation^-1 (master type [1, channels] each) from the sums; y = relu?(scale * (x - mean) / deviation +
  /// shift + residual). residual (shape of x) may be empty, or the same tensor as y. The variance is the biased one.
  /// scale, shift: compute type [1, channels].
  void batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands);
  /// d_mean, d_variance (master type [1, channels]) = or += weight * mean, weight * unbiased variance, from the sums:
  /// the input of running statistics (parameters.hpp).
  void batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight, Accumulate accumulate,
                             const Tensor& d_mean, const Tensor& d_variance);
  /// y from fixed statistics (compute type [1, channels]). y may be the same tensor as x or as residual.
  void batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands);
  /// Behind batch_norm_inference: d_y is overwritten with the gradient before the relu (where y > 0), which
  /// is also the residual's; d_x = scale * d_y / sqrt(variance + epsilon). d_x may be the same tensor as d_y.
  void batch_norm_inference_backward(const BatchNorm& norm, const BatchNormInferenceBackwardOperands& operands);
  /// Tells whether the two operations below take scale and shift in place of y, if nothing was added before the relu.
  /// They then derive the relu's mask from x and leave d_y as it is. It saves a pass of reading and writing.
  virtual bool recomputes_relu() const noexcept { return false; }
  /// d_y is overwritten with the gradient before the relu (where y > 0), which is also the residual's. sums: float64
  /// [1, 2 channels] = sum of that d_y, sum of d_y * (x - mean) * inverse. d_scale and d_shift (may be empty) are this
  /// rank's alone: = or +=.
  void batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                Accumulate accumulate);
  /// d_x = scale * inverse * (d_y - (sums[c] + x_hat * sums[channels + c]) / count); count: the last of the forward
  /// pass's sums. d_x may be the same tensor as d_y.
  void batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands);

 protected:
  explicit ImageOperations(const OperationTypes& types) : types_(types) {}
  const OperationTypes& types() const noexcept { return types_; }

 private:
  /// Checks for a shape, in the compute type or the narrow type.
  bool is_image(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const;

  LOCKSTEP_IMAGE_OPERATIONS(virtual void, { missing_operation(__func__); })
  virtual void do_add_image_gradient(const Convolution&, const Tensor& /*w*/, const Tensor& /*d_y*/,
                                     const Tensor& /*d_x*/) {
    missing_operation(__func__);
  }

  OperationTypes types_;
};

}  // namespace lockstep::model
