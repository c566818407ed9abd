/// \file
/// The coarse operations that networks are made of. One implementation per kind of device: cpu/ (fp32, fast),
/// reference/ (float64, obvious), cuda/ (later). Network code is written once against this class.
///
/// Conventions: activations are [batch, features] row-major in the backend's compute_type(); weights are
/// [inputs, outputs] row-major. Parameter gradients are written with `=` (Accumulate::no) or `+=` (Accumulate::yes);
/// activation gradients always with `=`. Sums over samples are double and their order is fixed, so a call repeats bit
/// for bit. Nothing here allocates after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>

#include "model/tensor.hpp"

namespace lockstep::model {

enum class Activation { none, relu, tanh, sigmoid };  ///< those whose derivative follows from y
Activation parse_activation(std::string_view name);   ///< throws std::invalid_argument listing the valid names
std::string_view name_of(Activation activation) noexcept;
enum class Accumulate : bool { no, yes };

/// x * scale + shift, applied while raw samples become activations.
struct InputTransform {
  float scale = 1;
  float shift = 0;
};

/// Sums over the samples of one batch.
struct LossSums {
  double loss = 0;    ///< cross-entropy: nats per sample; squared error: mean over the outputs of a sample
  double metric = 0;  ///< cross-entropy: correct answers; squared error: mean absolute error of a sample
};

enum class OptimizerKind { sgd, momentum, nesterov, adam, adamw };

/// Everything one update needs besides the arenas; scalars only, so that a GPU can keep it in device memory.
/// Formulas are in optimizer.hpp.
struct UpdateRule {
  OptimizerKind kind = OptimizerKind::sgd;
  float learning_rate = 0;
  float momentum = 0.9f;                                ///< momentum, nesterov
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;  ///< adam, adamw
  float bias_correction1 = 1, bias_correction2 = 1;     ///< 1 - beta^t, computed in double by the caller
  float weight_decay = 0;     ///< decoupled: w -= learning_rate * weight_decay * w, decayed slices only
  float gradient_factor = 1;  ///< multiplies the gradient first (clipping by global norm)
  float clip_value = 0;       ///< > 0: then clamp to [-clip_value, clip_value]
  float average_decay = 0;    ///< > 0: average = d * average + (1 - d) * new weight, with this step's d
};

/// One range of the arenas with one decay verdict.
struct UpdateSlice {
  std::size_t offset = 0;
  std::size_t count = 0;
  bool decayed = false;
};

/// Arenas of one update, all of the same length and layout; state and average are empty where not used.
struct UpdateArenas {
  Tensor parameters, gradients, state1, state2, average;
};

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::string_view name() const noexcept = 0;  ///< "cpu", "reference"
  virtual std::string description() const = 0;         ///< "cpu: OpenBLAS 0.3.21 SkylakeX, loops x86-64-v4, 1 thread"
  virtual ElementType compute_type() const noexcept = 0;
  virtual std::pmr::memory_resource* memory() noexcept = 0;  ///< where tensors live; 256-byte aligned
  /// Whether a tensor may also point into ordinary host memory (so that a batch need not be copied).
  virtual bool reads_host_memory() const noexcept = 0;

  /// out[i] = in[i] * scale + shift; in: uint8, float32 or float64, same shape as out (compute type).
  void convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out);
  /// y[b,o] = act(sum_i x[b,i] w[i,o] + bias[o]); bias may be empty (data == nullptr).
  void linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, const Tensor& y);
  /// d_y is overwritten with the gradient before the activation (uses y). d_x may be empty (first layer).
  void linear_backward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& d_y, Activation activation,
                       Accumulate accumulate, const Tensor& d_w, const Tensor& d_bias, const Tensor& d_x);
  /// logits [B, C] become their gradient * scale when want_gradient; labels int32 [B, 1] in [0, C).
  LossSums softmax_cross_entropy(const Tensor& logits, const Tensor& labels, double scale, bool want_gradient);
  /// predictions [B, O] become 2 (p - t) / O * scale when want_gradient; targets float32 [B, O].
  LossSums mean_squared_error(const Tensor& predictions, const Tensor& targets, double scale, bool want_gradient);
  /// Sum of squares of the elements, in double, fixed order.
  double sum_of_squares(const Tensor& x);
  /// gradients += l2 * parameters over the decayed slices.
  void add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                       std::span<const UpdateSlice> slices);
  /// One fused pass over the slices: clip, decay, optimiser, average.
  void update(const UpdateArenas& arenas, const UpdateRule& rule, std::span<const UpdateSlice> slices);
  void fill_zero(const Tensor& x);
  /// Between host and backend memory, converting between float32 and the compute type where they differ.
  void upload(std::span<const float> host, const Tensor& to);
  void download(const Tensor& from, std::span<float> host);

 protected:
  Backend() = default;

 private:
  virtual void do_convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) = 0;
  virtual void do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                 const Tensor& y) = 0;
  virtual void do_linear_backward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& d_y,
                                  Activation activation, Accumulate accumulate, const Tensor& d_w, const Tensor& d_bias,
                                  const Tensor& d_x) = 0;
  virtual LossSums do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, double scale,
                                            bool want_gradient) = 0;
  virtual LossSums do_mean_squared_error(const Tensor& predictions, const Tensor& targets, double scale,
                                         bool want_gradient) = 0;
  virtual double do_sum_of_squares(const Tensor& x) = 0;
  virtual void do_add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                                  std::span<const UpdateSlice> slices) = 0;
  virtual void do_update(const UpdateArenas& arenas, const UpdateRule& rule, std::span<const UpdateSlice> slices) = 0;
  virtual void do_fill_zero(const Tensor& x) = 0;
  virtual void do_upload(std::span<const float> host, const Tensor& to) = 0;
  virtual void do_download(const Tensor& from, std::span<float> host) = 0;
};

struct BackendOptions {
  int threads = 1;
};
/// The one place that knows which backends were compiled. name: "cpu" or "reference". Throws std::invalid_argument.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options = {});

}  // namespace lockstep::model
