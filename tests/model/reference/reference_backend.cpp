#include "model/reference/reference_backend.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/formulas/elementwise.hpp"
#include "model/reference/reference_activations.hpp"
#include "model/update_rule.hpp"

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
      double sum = bias.present() ? bias.elements<double>()[o] : 0;
      for (std::size_t i = 0; i < columns(x); ++i) sum += in(b, i) * weight(i, o);
      out(b, o) = activate(activation, sum);
    }
  }
}

void ReferenceBackend::do_linear_backward(const LinearBackwardOperands& operands, Activation activation,
                                          Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const Matrix<double> in(x), weight(w), d_out(d_y);
  if (activation != Activation::none) {
    const auto value = y.elements<double>();
    const auto gradient = d_y.elements<double>();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = activation_gradient(activation, value[i], gradient[i]);
    }
  }
  const double keep = accumulate == Accumulate::yes ? 1 : 0;
  if (d_w.present()) {
    const Matrix<double> d_weight(d_w);
    for (std::size_t i = 0; i < rows(w); ++i) {
      for (std::size_t o = 0; o < columns(w); ++o) {
        double sum = keep != 0 ? d_weight(i, o) : 0;
        for (std::size_t b = 0; b < rows(x); ++b) sum += in(b, i) * d_out(b, o);
        d_weight(i, o) = sum;
      }
    }
  }
  if (d_bias.present()) {
    const auto gradient = d_bias.elements<double>();
    for (std::size_t o = 0; o < columns(w); ++o) {
      double sum = keep != 0 ? gradient[o] : 0;
      for (std::size_t b = 0; b < rows(x); ++b) sum += d_out(b, o);
      gradient[o] = sum;
    }
  }
  if (d_x.present()) {
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

namespace {

double weight_of(const LossOptions& options, std::size_t row) {
  return options.weights.present() ? static_cast<double>(options.weights.elements<float>()[row]) : 1;
}

/// Cost of an error and its derivative.
struct ErrorCost {
  double cost, slope;
};
ErrorCost cost_of(ErrorLoss loss, double error) {
  const double magnitude = std::abs(error), sign = error > 0 ? 1 : error < 0 ? -1 : error;
  if (loss == ErrorLoss::squared) return {error * error, 2 * error};
  if (loss == ErrorLoss::absolute) return {magnitude, sign};
  return magnitude > 1 ? ErrorCost{magnitude - 0.5, sign} : ErrorCost{error * error / 2, error};
}

}  // namespace

void ReferenceBackend::do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                                const Tensor& sums) {
  LossSums part;
  const auto answers = labels.elements<std::int32_t>();
  const auto classes = static_cast<std::size_t>(options.classes_of(logits));
  const double smoothing = options.smoothing;
  const auto target = [&](bool is_label) {
    return (is_label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
  };
  for (std::size_t b = 0; b < rows(logits); ++b) {
    const auto row = logits.elements<double>().subspan(b * columns(logits), columns(logits));
    const auto z = row.first(classes);
    if (answers[b] == kNoClass) {
      assert(weight_of(options, b) == 0);
      if (options.want_gradient) std::ranges::fill(row, 0.0);
      continue;
    }
    const auto label = static_cast<std::size_t>(answers[b]);
    assert(label < classes);
    const double greatest = *std::max_element(z.begin(), z.end());
    double total = 0;
    for (const double v : z) total += std::exp(v - greatest);
    for (std::size_t o = 0; o < classes; ++o) {
      if (target(o == label) > 0) {
        part.loss += weight_of(options, b) * target(o == label) * (std::log(total) + greatest - z[o]);
      }
    }
    // Classes rank by logit, equal ones by index. A row with a NaN has no ranking.
    std::size_t before = 0;
    for (std::size_t o = 0; o < classes; ++o) {
      if (z[o] > z[label] || (z[o] == z[label] && o < label)) ++before;
    }
    if (before == 0 && !std::isnan(total)) part.metric += 1;
    if (before < 5 && !std::isnan(total) && !options.want_gradient) part.found += 1;
    if (options.want_gradient) {
      for (std::size_t o = 0; o < classes; ++o) {
        z[o] = (std::exp(z[o] - greatest) / total - target(o == label)) * options.scale * weight_of(options, b);
      }
      std::ranges::fill(row.subspan(classes), 0.0);
    }
  }
  add(part, sums);
}

void ReferenceBackend::do_mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                                     const Tensor& sums) {
  LossSums part;
  const auto outputs = static_cast<double>(predictions.columns);
  const auto p = predictions.elements<double>();
  const auto t = targets.elements<float>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double error = p[i] - static_cast<double>(t[i]), weight = weight_of(options, i / columns(predictions));
    const ErrorCost of_one = cost_of(options.of_error, error);
    part.loss += weight * of_one.cost / outputs;
    part.metric += std::abs(error) / outputs;
    if (options.want_gradient) p[i] = of_one.slope / outputs * options.scale * weight;
  }
  add(part, sums);
}

void ReferenceBackend::do_soft_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                             const Tensor& sums) {
  LossSums part;
  const auto classes = static_cast<std::size_t>(targets.columns);
  const double smoothing = static_cast<double>(options.smoothing);
  for (std::size_t b = 0; b < rows(logits); ++b) {
    const auto z = logits.elements<double>().subspan(b * columns(logits), classes);
    const auto t = targets.elements<float>().subspan(b * classes, classes);
    const auto target = [&](std::size_t o) {
      return (1 - smoothing) * static_cast<double>(t[o]) + smoothing / static_cast<double>(classes);
    };
    const auto label = static_cast<std::size_t>(std::ranges::max_element(t) - t.begin());
    const double greatest = *std::ranges::max_element(z);
    double total = 0, sum = 0;
    for (const double v : z) total += std::exp(v - greatest);
    std::size_t before = 0;
    for (std::size_t o = 0; o < classes; ++o) {
      sum += target(o);
      if (target(o) > 0) part.loss += weight_of(options, b) * target(o) * (std::log(total) + greatest - z[o]);
      if (z[o] > z[label] || (z[o] == z[label] && o < label)) ++before;
    }
    if (before == 0 && !std::isnan(total)) part.metric += 1;
    if (before < 5 && !std::isnan(total) && !options.want_gradient) part.found += 1;
    for (std::size_t o = 0; options.want_gradient && o < classes; ++o) {
      z[o] = (std::exp(z[o] - greatest) / total * sum - target(o)) * options.scale * weight_of(options, b);
    }
  }
  add(part, sums);
}

void ReferenceBackend::do_soft_dice(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                    const Tensor& work, const Tensor& sums) {
  LossSums part;
  const auto samples = rows(work), classes = static_cast<std::size_t>(options.classes_of(logits));
  const std::size_t positions = rows(logits) / samples;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const auto z = [&](std::size_t i) {
      return logits.elements<double>().subspan((sample * positions + i) * columns(logits), columns(logits));
    };
    const auto answers = labels.elements<std::int32_t>().subspan(sample * positions, positions);
    std::vector<std::vector<double>> p(positions, std::vector<double>(classes, 0.0));
    std::vector<double> shared(classes), sizes(classes);
    for (std::size_t i = 0; i < positions; ++i) {
      if (answers[i] == kNoClass) continue;
      const auto row = z(i).first(classes);
      const double greatest = *std::ranges::max_element(row);
      double total = 0;
      for (const double v : row) total += std::exp(v - greatest);
      for (std::size_t c = 0; c < classes; ++c) {
        const bool is_label = c == static_cast<std::size_t>(answers[i]);
        p[i][c] = std::exp(row[c] - greatest) / total;
        sizes[c] += p[i][c] + (is_label ? 1 : 0);
        if (is_label) shared[c] += p[i][c];
      }
      if (std::ranges::max_element(row) - row.begin() == answers[i]) part.metric += 1;
    }
    const auto each = 1 / static_cast<double>(classes), of_positions = static_cast<double>(positions);
    for (std::size_t c = 0; c < classes; ++c) {
      part.loss += of_positions * each * (1 - (2 * shared[c] + 1) / (sizes[c] + 1));
    }
    for (std::size_t i = 0; options.want_gradient && i < positions; ++i) {
      // Derivative of the loss by p, then through the softmax.
      std::vector<double> slope(classes);
      double mean = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        const double t = answers[i] == static_cast<std::int32_t>(c) ? 1 : 0, whole = sizes[c] + 1;
        slope[c] = -each * (2 * t * whole - (2 * shared[c] + 1)) / (whole * whole);
        mean += slope[c] * p[i][c];
      }
      std::ranges::fill(z(i), 0.0);
      for (std::size_t c = 0; c < classes; ++c) {
        z(i)[c] = p[i][c] * (slope[c] - mean) * of_positions * options.scale;
      }
    }
  }
  add(part, sums);
}

void ReferenceBackend::do_binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                               const Tensor& sums) {
  LossSums part;
  const auto labels = static_cast<double>(logits.columns), smoothing = static_cast<double>(options.smoothing);
  const auto z = logits.elements<double>();
  const auto t = targets.elements<float>();
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double wanted = (1 - smoothing) * static_cast<double>(t[i]) + smoothing / 2;
    const double weight = weight_of(options, i / columns(logits));
    part.loss += weight * (std::max(z[i], 0.0) + std::log1p(std::exp(-std::abs(z[i]))) - wanted * z[i]);
    part.metric += (z[i] > 0) == (t[i] > 0.5f) && !std::isnan(z[i]) ? 1 : 0;
    part.found += z[i] > 0 && t[i] > 0.5f ? 1 : 0;
    if (options.want_gradient) z[i] = (1 / (1 + std::exp(-z[i])) - wanted) / labels * options.scale * weight;
  }
  part = {.loss = part.loss / labels, .metric = part.metric / labels, .found = part.found / labels};
  add(part, sums);
}

namespace {

struct ExactExp {
  static double of(double x) { return std::exp(x); }
  static double tanh_of(double x) { return std::tanh(x); }
  static double normal_share_of(double x) { return std::erfc(-x * formulas::kRootOfHalf) / 2; }
  static double log1p_of(double x) { return std::log1p(x); }
  static double log1p_of_share(double x) { return std::log1p(x); }
};

}  // namespace

void ReferenceBackend::do_elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) {
  formulas::for_function(f.function, [&]<Function kFunction>() {
    std::ranges::transform(x.elements<double>(), y.elements<double>().begin(), [&](double value) {
      return formulas::value_of<kFunction, ExactExp>(value, static_cast<double>(f.parameter));
    });
  });
}

void ReferenceBackend::do_elementwise_backward(const Elementwise& f, const Tensor& read, const Tensor& d_y,
                                               const Tensor& d_x) {
  const auto v = read.elements<double>(), from = d_y.elements<double>(), to = d_x.elements<double>();
  formulas::for_function(f.function, [&]<Function kFunction>() {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i] =
          from[i] * formulas::slope_of<kFunction, ExactExp>(v.empty() ? 0.0 : v[i], static_cast<double>(f.parameter));
    }
  });
}

void ReferenceBackend::do_add(const Tensor& x, const Tensor& to) {
  for (std::size_t i = 0; i < x.elements<double>().size(); ++i) to.elements<double>()[i] += x.elements<double>()[i];
}

void ReferenceBackend::do_sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate) {
  double sum = 0;
  for (const double v : x.elements<double>()) sum += v * v;
  put(sum, accumulate, out);
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

void ReferenceBackend::do_update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging,
                                 const Tensor& numbers, std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const auto update = open(numbers, gate);
  if (!update) return;
  const UpdateRule& rule = update->rule;
  const double mu = rule.momentum, beta1 = rule.beta1, beta2 = rule.beta2;
  const auto elements = [](const Tensor& arena, const UpdateSlice& slice) {
    return arena.slice({slice.offset, slice.count}).elements<double>();
  };
  const auto norm = [](std::span<const double> x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    return std::sqrt(squares);
  };
  for (const UpdateSlice& slice : slices) {
    const auto w = elements(arenas.parameters, slice), gradients = elements(arenas.gradients, slice);
    std::vector<double> g(gradients.begin(), gradients.end());
    const auto v = elements(arenas.state1, slice), s = elements(arenas.state2, slice);
    const auto average = elements(arenas.average, slice);
    if (slice.statistic) {
      const double keep = rule.statistics_decay;
      for (std::size_t i = 0; i < slice.count; ++i) w[i] = keep * w[i] + (1 - keep) * g[i];
      if (averaging == Averaging::yes) std::ranges::copy(w, average.begin());
      continue;
    }
    const double rate = static_cast<double>(rule.learning_rate) * static_cast<double>(slice.rate_scale);
    const double limit = rule.clip_value, decay = slice.decayed ? rule.weight_decay : 0;
    for (double& value : g) {
      value *= static_cast<double>(update->gradient_factor);
      if (limit > 0) value = value > limit ? limit : value < -limit ? -limit : value;
    }
    double ratio = 1;
    const double weights = norm(w);
    if (kind == OptimizerKind::lars && slice.decayed && weights > 0 && norm(g) > 0) {
      ratio = static_cast<double>(rule.trust) * weights / (norm(g) + decay * weights);
    }
    // For rules with two moments (adam and similar), the direction overwrites the gradient.
    for (std::size_t i = 0; i < slice.count && state_count(kind) == 2; ++i) {
      v[i] = beta1 * v[i] + (1 - beta1) * g[i];
      s[i] = beta2 * s[i] + (1 - beta2) * g[i] * g[i];
      g[i] = (v[i] / static_cast<double>(rule.bias_correction1)) /
             (std::sqrt(s[i] / static_cast<double>(rule.bias_correction2)) + static_cast<double>(rule.epsilon));
      if (kind == OptimizerKind::lamb) g[i] += decay * w[i];
    }
    if (kind == OptimizerKind::lamb && slice.decayed && weights > 0 && norm(g) > 0) ratio = weights / norm(g);
    for (std::size_t i = 0; i < slice.count; ++i) {
      if (kind == OptimizerKind::lars) {
        v[i] = mu * v[i] + ratio * rate * (g[i] + decay * w[i]);
        w[i] -= v[i];
      } else if (kind == OptimizerKind::lamb) {
        w[i] -= ratio * rate * g[i];
      } else {
        w[i] -= rate * decay * w[i];
        if (state_count(kind) == 1) v[i] = mu * v[i] + g[i];
        w[i] -= rate * (kind == OptimizerKind::nesterov   ? g[i] + mu * v[i]
                        : kind == OptimizerKind::momentum ? v[i]
                                                          : g[i]);
      }
      if (averaging == Averaging::yes) {
        const double d = rule.average_decay;
        average[i] = d * average[i] + (1 - d) * w[i];
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
