#include "model/backend.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

void require(bool condition, const char* operation, const char* rule) {
  if (!condition) throw std::invalid_argument(fmt::format("{}: {}", operation, rule));
}

bool present(const Tensor& tensor) { return tensor.data != nullptr; }

bool is(const Tensor& tensor, ElementType type, std::int64_t rows, std::int64_t columns) {
  return tensor.type == type && tensor.rows == rows && tensor.columns == columns &&
         (present(tensor) || tensor.count() == 0);
}

void require_slices(std::span<const UpdateSlice> slices, const Tensor& arena, const char* operation) {
  for (const UpdateSlice& slice : slices) {
    const auto elements = static_cast<std::size_t>(arena.count());
    require(slice.offset <= elements && slice.count <= elements - slice.offset, operation,
            "a slice reaches beyond the arena");
  }
}

}  // namespace

void Backend::convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  require(in.type != ElementType::int32, "convert_input", "samples must be uint8, float32 or float64");
  require(is(in, in.type, in.rows, in.columns) && is(out, compute_type(), in.rows, in.columns), "convert_input",
          "out must have the shape of in and the compute type");
  do_convert_input(in, transform, out);
}

void Backend::linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                             const Tensor& y) {
  const ElementType type = compute_type();
  require(is(x, type, x.rows, w.rows), "linear_forward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_forward",
          "w must be [inputs, outputs] in the compute type");
  require(!present(bias) || is(bias, type, 1, w.columns), "linear_forward", "bias must be [1, outputs]");
  require(is(y, type, x.rows, w.columns), "linear_forward", "y must be [batch, outputs] in the compute type");
  do_linear_forward(x, w, bias, activation, y);
}

void Backend::linear_backward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& d_y,
                              Activation activation, Accumulate accumulate, const Tensor& d_w, const Tensor& d_bias,
                              const Tensor& d_x) {
  const ElementType type = compute_type();
  require(is(x, type, x.rows, w.rows), "linear_backward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_backward",
          "w must be [inputs, outputs] in the compute type");
  require(is(d_y, type, x.rows, w.columns), "linear_backward", "d_y must be [batch, outputs] in the compute type");
  require(activation == Activation::none || is(y, type, x.rows, w.columns), "linear_backward",
          "y must be [batch, outputs] where there is an activation");
  require(is(d_w, type, w.rows, w.columns), "linear_backward", "d_w must have the shape of w");
  require(!present(d_bias) || is(d_bias, type, 1, w.columns), "linear_backward", "d_bias must be [1, outputs]");
  require(!present(d_x) || is(d_x, type, x.rows, x.columns), "linear_backward", "d_x must have the shape of x");
  require(d_x.count() == 0 || d_x.data != x.data, "linear_backward", "d_x must have memory of its own");
  do_linear_backward(x, w, y, d_y, activation, accumulate, d_w, d_bias, d_x);
}

LossSums Backend::softmax_cross_entropy(const Tensor& logits, const Tensor& labels, double scale, bool want_gradient) {
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, "softmax_cross_entropy",
          "logits must be [batch, classes] in the compute type");
  require(is(labels, ElementType::int32, logits.rows, 1), "softmax_cross_entropy", "labels must be int32 [batch, 1]");
  return do_softmax_cross_entropy(logits, labels, scale, want_gradient);
}

LossSums Backend::mean_squared_error(const Tensor& predictions, const Tensor& targets, double scale,
                                     bool want_gradient) {
  require(is(predictions, compute_type(), predictions.rows, predictions.columns) && predictions.columns > 0,
          "mean_squared_error", "predictions must be [batch, outputs] in the compute type");
  require(is(targets, ElementType::float32, predictions.rows, predictions.columns), "mean_squared_error",
          "targets must be float32 with the shape of the predictions");
  return do_mean_squared_error(predictions, targets, scale, want_gradient);
}

double Backend::sum_of_squares(const Tensor& x) {
  require(is(x, compute_type(), x.rows, x.columns), "sum_of_squares", "x must have the compute type");
  return do_sum_of_squares(x);
}

void Backend::add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                              std::span<const UpdateSlice> slices) {
  require(is(parameters, compute_type(), parameters.rows, parameters.columns) &&
              is(gradients, compute_type(), parameters.rows, parameters.columns),
          "add_l2_gradient", "gradients must have the shape of the parameters and the compute type");
  require_slices(slices, parameters, "add_l2_gradient");
  do_add_l2_gradient(parameters, gradients, l2, slices);
}

void Backend::update(const UpdateArenas& arenas, const UpdateRule& rule, std::span<const UpdateSlice> slices) {
  const Tensor& w = arenas.parameters;
  const auto arena = [&](const Tensor& tensor, bool needed) {
    return !needed || is(tensor, compute_type(), w.rows, w.columns);
  };
  const bool moments = rule.kind == OptimizerKind::adam || rule.kind == OptimizerKind::adamw;
  require(arena(w, true) && arena(arenas.gradients, true), "update",
          "parameters and gradients must have one shape and the compute type");
  require(arena(arenas.state1, rule.kind != OptimizerKind::sgd) && arena(arenas.state2, moments), "update",
          "the optimiser's state arenas must have the shape of the parameters");
  require(arena(arenas.average, rule.average_decay > 0), "update",
          "the average arena must have the shape of the parameters");
  require_slices(slices, w, "update");
  do_update(arenas, rule, slices);
}

void Backend::fill_zero(const Tensor& x) {
  require(is(x, compute_type(), x.rows, x.columns), "fill_zero", "x must have the compute type");
  do_fill_zero(x);
}

void Backend::upload(std::span<const float> host, const Tensor& to) {
  require(is(to, compute_type(), to.rows, to.columns) && host.size() == static_cast<std::size_t>(to.count()), "upload",
          "the host array must have as many elements as the tensor");
  do_upload(host, to);
}

void Backend::download(const Tensor& from, std::span<float> host) {
  require(is(from, compute_type(), from.rows, from.columns) && host.size() == static_cast<std::size_t>(from.count()),
          "download", "the host array must have as many elements as the tensor");
  do_download(from, host);
}

}  // namespace lockstep::model
