#include "model/reference/reference_backend.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep::model {

namespace {

/// Row-major access by (row, column).
template <class T>
class Matrix {
 public:
  explicit Matrix(const Tensor& tensor)
      : elements_(tensor.elements<T>()), columns_(static_cast<std::size_t>(tensor.columns)) {}
  T& operator()(std::size_t row, std::size_t column) const { return elements_[row * columns_ + column]; }

 private:
  std::span<T> elements_;
  std::size_t columns_;
};

std::size_t rows(const Tensor& tensor) { return static_cast<std::size_t>(tensor.rows); }
std::size_t columns(const Tensor& tensor) { return static_cast<std::size_t>(tensor.columns); }

double activate(Activation activation, double v) {
  switch (activation) {
    case Activation::none:
      return v;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::tanh:
      return std::tanh(v);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
  }
  return v;
}

/// d_v from d_y, by the value y = activate(v).
double activation_gradient(Activation activation, double y, double d_y) {
  switch (activation) {
    case Activation::none:
      return d_y;
    case Activation::relu:
      return y > 0 ? d_y : 0;
    case Activation::tanh:
      return d_y * (1 - y * y);
    case Activation::sigmoid:
      return d_y * y * (1 - y);
  }
  return d_y;
}

template <class T>
void convert(std::span<const T> in, const InputTransform& transform, std::span<double> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = static_cast<double>(in[i]) * static_cast<double>(transform.scale) + static_cast<double>(transform.shift);
  }
}

}  // namespace

void ReferenceBackend::do_convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  const auto to = out.elements<double>();
  if (in.type == ElementType::uint8) convert<std::uint8_t>(in.elements<std::uint8_t>(), transform, to);
  if (in.type == ElementType::float32) convert<float>(in.elements<float>(), transform, to);
  if (in.type == ElementType::float64) convert<double>(in.elements<double>(), transform, to);
}

void ReferenceBackend::do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                         const Tensor& y) {
  const Matrix<double> in(x), weight(w), out(y);
  for (std::size_t b = 0; b < rows(x); ++b) {
    for (std::size_t o = 0; o < columns(w); ++o) {
      double sum = bias.data != nullptr ? bias.elements<double>()[o] : 0;
      for (std::size_t i = 0; i < columns(x); ++i) sum += in(b, i) * weight(i, o);
      out(b, o) = activate(activation, sum);
    }
  }
}

void ReferenceBackend::do_linear_backward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& d_y,
                                          Activation activation, Accumulate accumulate, const Tensor& d_w,
                                          const Tensor& d_bias, const Tensor& d_x) {
  const Matrix<double> in(x), weight(w), d_out(d_y), d_weight(d_w);
  if (activation != Activation::none) {
    const auto value = y.elements<double>();
    const auto gradient = d_y.elements<double>();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = activation_gradient(activation, value[i], gradient[i]);
    }
  }
  const double keep = accumulate == Accumulate::yes ? 1 : 0;
  for (std::size_t i = 0; i < rows(w); ++i) {
    for (std::size_t o = 0; o < columns(w); ++o) {
      double sum = keep != 0 ? d_weight(i, o) : 0;
      for (std::size_t b = 0; b < rows(x); ++b) sum += in(b, i) * d_out(b, o);
      d_weight(i, o) = sum;
    }
  }
  if (d_bias.data != nullptr) {
    const auto gradient = d_bias.elements<double>();
    for (std::size_t o = 0; o < columns(w); ++o) {
      double sum = keep != 0 ? gradient[o] : 0;
      for (std::size_t b = 0; b < rows(x); ++b) sum += d_out(b, o);
      gradient[o] = sum;
    }
  }
  if (d_x.data != nullptr) {
    const Matrix<double> d_in(d_x);
    for (std::size_t b = 0; b < rows(x); ++b) {
      for (std::size_t i = 0; i < rows(w); ++i) {
        double sum = 0;
        for (std::size_t o = 0; o < columns(w); ++o) sum += d_out(b, o) * weight(i, o);
        d_in(b, i) = sum;
      }
    }
  }
}

void ReferenceBackend::do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, double scale,
                                                bool want_gradient, const Tensor& sums) {
  LossSums part;
  const auto answers = labels.elements<std::int32_t>();
  const std::size_t classes = columns(logits);
  for (std::size_t b = 0; b < rows(logits); ++b) {
    const auto z = logits.elements<double>().subspan(b * classes, classes);
    const auto label = static_cast<std::size_t>(answers[b]);
    assert(label < classes);
    const double greatest = *std::max_element(z.begin(), z.end());
    double total = 0;
    for (const double v : z) total += std::exp(v - greatest);
    part.loss += std::log(total) + greatest - z[label];
    // The first greatest logit is the answer; a row with a NaN has none.
    const auto answer = static_cast<std::size_t>(std::max_element(z.begin(), z.end()) - z.begin());
    if (answer == label && !std::isnan(total)) part.metric += 1;
    if (want_gradient) {
      for (std::size_t o = 0; o < classes; ++o) {
        z[o] = (std::exp(z[o] - greatest) / total - (o == label ? 1 : 0)) * scale;
      }
    }
  }
  add(part, sums);
}

void ReferenceBackend::do_mean_squared_error(const Tensor& predictions, const Tensor& targets, double scale,
                                             bool want_gradient, const Tensor& sums) {
  LossSums part;
  const auto outputs = static_cast<double>(predictions.columns);
  const auto p = predictions.elements<double>();
  const auto t = targets.elements<float>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double error = p[i] - static_cast<double>(t[i]);
    part.loss += error * error / outputs;
    part.metric += std::abs(error) / outputs;
    if (want_gradient) p[i] = 2 * error / outputs * scale;
  }
  add(part, sums);
}

void ReferenceBackend::do_sum_of_squares(const Tensor& x, const Tensor& out) {
  double sum = 0;
  for (const double v : x.elements<double>()) sum += v * v;
  set(sum, out);
}

void ReferenceBackend::do_add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                                          std::span<const UpdateSlice> slices) {
  for (const UpdateSlice& slice : slices) {
    if (!slice.decayed) continue;
    for (std::size_t i = slice.offset; i < slice.offset + slice.count; ++i) {
      gradients.elements<double>()[i] += static_cast<double>(l2) * parameters.elements<double>()[i];
    }
  }
}

void ReferenceBackend::do_update(const UpdateArenas& arenas, OptimizerKind kind, bool averaging, const Tensor& numbers,
                                 std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const auto update = open(numbers, gate);
  if (!update) return;
  const UpdateRule& rule = update->rule;
  const double rate = rule.learning_rate, mu = rule.momentum, beta1 = rule.beta1, beta2 = rule.beta2;
  for (const UpdateSlice& slice : slices) {
    for (std::size_t i = slice.offset; i < slice.offset + slice.count; ++i) {
      double& w = arenas.parameters.elements<double>()[i];
      double g = arenas.gradients.elements<double>()[i] * static_cast<double>(update->gradient_factor);
      const double limit = rule.clip_value;
      if (limit > 0) g = g > limit ? limit : g < -limit ? -limit : g;
      if (slice.decayed) w -= rate * static_cast<double>(rule.weight_decay) * w;
      if (kind == OptimizerKind::sgd) {
        w -= rate * g;
      } else if (kind == OptimizerKind::momentum || kind == OptimizerKind::nesterov) {
        double& v = arenas.state1.elements<double>()[i];
        v = mu * v + g;
        w -= rate * (kind == OptimizerKind::nesterov ? g + mu * v : v);
      } else {
        double& m = arenas.state1.elements<double>()[i];
        double& s = arenas.state2.elements<double>()[i];
        m = beta1 * m + (1 - beta1) * g;
        s = beta2 * s + (1 - beta2) * g * g;
        w -= rate * (m / static_cast<double>(rule.bias_correction1)) /
             (std::sqrt(s / static_cast<double>(rule.bias_correction2)) + static_cast<double>(rule.epsilon));
      }
      if (averaging) {
        const double d = rule.average_decay;
        double& average = arenas.average.elements<double>()[i];
        average = d * average + (1 - d) * w;
      }
    }
  }
}

void ReferenceBackend::do_upload(std::span<const float> host, const Tensor& to) {
  std::ranges::copy(host, to.elements<double>().begin());
}

void ReferenceBackend::do_download(const Tensor& from, std::span<float> host) {
  std::ranges::transform(from.elements<double>(), host.begin(), [](double v) { return static_cast<float>(v); });
}

}  // namespace lockstep::model
