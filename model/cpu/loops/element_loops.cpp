#include "model/cpu/loops/element_loops.hpp"

#include <cmath>

#include "model/cpu/clones.hpp"
#include "model/formulas/activations.hpp"
#include "model/formulas/losses.hpp"
#include "model/formulas/update.hpp"

namespace lockstep::model::cpu {

namespace {

template <class T>
LOCKSTEP_INLINE void convert_each(std::span<const T> in, InputTransform transform, std::span<float> out) {
  const T* __restrict from = in.data();
  float* __restrict to = out.data();
  for (std::size_t i = 0; i < in.size(); ++i) {
    to[i] = static_cast<float>(from[i]) * transform.scale + transform.shift;
  }
}

/// Changes d_y in place, and adds its column sums. The outer loop runs over rows, the inner over columns.
template <Activation kActivation>
LOCKSTEP_INLINE void gradient_rows(std::span<const float> y, std::span<float> d_y, std::size_t columns,
                                   std::size_t begin, std::size_t end, std::span<float> d_bias) {
  float* __restrict sums = d_bias.empty() ? nullptr : d_bias.data();
  for (std::size_t row = 0; row < d_y.size(); row += columns) {
    const float* __restrict value = y.data() + row;
    float* __restrict gradient = d_y.data() + row;
    if (sums != nullptr) {
      for (std::size_t o = begin; o < end; ++o) {
        gradient[o] = formulas::gradient_before<kActivation>(value[o], gradient[o]);
        sums[o] += gradient[o];
      }
    } else {
      for (std::size_t o = begin; o < end; ++o)
        gradient[o] = formulas::gradient_before<kActivation>(value[o], gradient[o]);
    }
  }
}

/// Each `if` depends on a template argument. State that a rule does not have is an unused local variable.
template <OptimizerKind kKind, bool kAverage>
LOCKSTEP_INLINE void update_each(const UpdateSpans& spans, const Update& update) {
  constexpr bool kFirst =
      kKind != OptimizerKind::lamb && (formulas::keeps_velocity(kKind) || formulas::keeps_moments(kKind));
  constexpr bool kSecond = kKind != OptimizerKind::lamb && formulas::keeps_moments(kKind);
  float* __restrict parameters = spans.parameters.data();
  const float* __restrict gradients = spans.gradients.data();
  float* __restrict state1 = spans.state1.data();
  float* __restrict state2 = spans.state2.data();
  float* __restrict average = spans.average.data();
  const formulas::UpdateScalars scalars = formulas::with_ratio(
      formulas::update_scalars(kKind, update.rule, update.gradient_factor, update.decayed, update.rate_scale),
      update.ratio);
  const std::size_t count = spans.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    float first = 0, second = 0;
    if constexpr (kFirst) first = state1[i];
    if constexpr (kSecond) second = state2[i];
    const float w = formulas::updated<kKind>(scalars, parameters[i], gradients[i], first, second);
    if constexpr (kFirst) state1[i] = first;
    if constexpr (kSecond) state2[i] = second;
    parameters[i] = w;
    if constexpr (kAverage) average[i] = formulas::averaged(scalars, average[i], w);
  }
}

template <OptimizerKind kKind>
LOCKSTEP_INLINE void update_with(const UpdateSpans& spans, const Update& update) {
  if (update.averaging == Averaging::yes) {
    update_each<kKind, true>(spans, update);
  } else {
    update_each<kKind, false>(spans, update);
  }
}

}  // namespace

const char* loop_instruction_set() noexcept {
#if LOCKSTEP_HAS_CLONES
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
#endif
  return "baseline";
}

LOCKSTEP_CLONES void convert(std::span<const std::uint8_t> in, InputTransform transform, std::span<float> out) {
  convert_each(in, transform, out);
}
LOCKSTEP_CLONES void convert(std::span<const float> in, InputTransform transform, std::span<float> out) {
  convert_each(in, transform, out);
}
LOCKSTEP_CLONES void convert(std::span<const double> in, InputTransform transform, std::span<float> out) {
  convert_each(in, transform, out);
}

LOCKSTEP_CLONES double sum_of_squares(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

LOCKSTEP_CLONES double sum_of_clipped_squares(std::span<const float> gradients, const UpdateRule& rule,
                                              float gradient_factor) {
  const auto scalars = formulas::update_scalars(OptimizerKind::lars, rule, gradient_factor, true);
  double sum = 0;
  for (const float g : gradients) {
    const auto v = static_cast<double>(formulas::clipped(scalars, g));
    sum += v * v;
  }
  return sum;
}

LOCKSTEP_CLONES void add_scaled(std::span<const float> x, float factor, std::span<float> y) {
  const float* __restrict from = x.data();
  float* __restrict to = y.data();
  for (std::size_t i = 0; i < y.size(); ++i) to[i] += factor * from[i];
}

LOCKSTEP_CLONES void add_column_sums(std::span<const float> x, std::size_t columns, std::size_t begin, std::size_t end,
                                     std::span<float> sums) {
  if (columns == 1) {
    float sum = 0;
    for (const float v : x) sum += v;
    sums[0] += sum;
    return;
  }
  float* __restrict to = sums.data();
  for (std::size_t row = 0; row < x.size(); row += columns) {
    const float* __restrict from = x.data() + row;
    for (std::size_t o = begin; o < end; ++o) to[o] += from[o];
  }
}

LOCKSTEP_CLONES void activation_gradient(Activation activation, std::span<const float> y, std::span<float> d_y,
                                         std::size_t columns, std::size_t begin, std::size_t end,
                                         std::span<float> d_bias) {
  switch (activation) {
    case Activation::none:
      if (!d_bias.empty()) add_column_sums(d_y, columns, begin, end, d_bias);
      return;
    case Activation::relu:
      return gradient_rows<Activation::relu>(y, d_y, columns, begin, end, d_bias);
    case Activation::tanh:
      return gradient_rows<Activation::tanh>(y, d_y, columns, begin, end, d_bias);
    case Activation::sigmoid:
      return gradient_rows<Activation::sigmoid>(y, d_y, columns, begin, end, d_bias);
  }
}

namespace {

template <ErrorLoss kLoss>
LOCKSTEP_INLINE LossSums error_loop(std::span<float> predictions, std::span<const float> targets, std::size_t outputs,
                                    const LossOptions& options) {
  float* __restrict p = predictions.data();
  const float* __restrict t = targets.data();
  const formulas::OutputError<kLoss> error{static_cast<float>(options.scale / static_cast<double>(outputs))};
  LossSums sums;
  for (std::size_t i = 0; i < predictions.size(); ++i) error.add(p[i], t[i], sums);
  if (options.want_gradient) {
    for (std::size_t i = 0; i < predictions.size(); ++i) p[i] = error.gradient(p[i], t[i]);
  }
  return {.loss = sums.loss / static_cast<double>(outputs), .metric = sums.metric / static_cast<double>(outputs)};
}

}  // namespace

LOCKSTEP_CLONES LossSums mean_error(std::span<float> predictions, std::span<const float> targets, std::size_t outputs,
                                    const LossOptions& options) {
  if (options.of_error == ErrorLoss::absolute) {
    return error_loop<ErrorLoss::absolute>(predictions, targets, outputs, options);
  }
  if (options.of_error == ErrorLoss::huber) {
    return error_loop<ErrorLoss::huber>(predictions, targets, outputs, options);
  }
  float* __restrict p = predictions.data();
  const float* __restrict t = targets.data();
  double squares = 0, magnitudes = 0;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const double error = static_cast<double>(p[i]) - static_cast<double>(t[i]);
    squares += error * error;
    magnitudes += error < 0 ? -error : error;
  }
  if (options.want_gradient) {
    const auto factor = static_cast<float>(2 * options.scale / static_cast<double>(outputs));
    for (std::size_t i = 0; i < predictions.size(); ++i) p[i] = (p[i] - t[i]) * factor;
  }
  return {.loss = squares / static_cast<double>(outputs), .metric = magnitudes / static_cast<double>(outputs)};
}

LOCKSTEP_CLONES void update(const UpdateSpans& spans, const Update& update) {
  switch (update.kind) {
    case OptimizerKind::sgd:
      return update_with<OptimizerKind::sgd>(spans, update);
    case OptimizerKind::momentum:
      return update_with<OptimizerKind::momentum>(spans, update);
    case OptimizerKind::nesterov:
      return update_with<OptimizerKind::nesterov>(spans, update);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return update_with<OptimizerKind::adam>(spans, update);
    case OptimizerKind::lars:
      return update_with<OptimizerKind::lars>(spans, update);
    case OptimizerKind::lamb:
      return update_with<OptimizerKind::lamb>(spans, update);
  }
}

LOCKSTEP_CLONES void lamb_directions(const UpdateSpans& spans, const Update& update) {
  const auto scalars =
      formulas::update_scalars(OptimizerKind::lamb, update.rule, update.gradient_factor, update.decayed);
  const float* __restrict parameters = spans.parameters.data();
  float* __restrict gradients = spans.gradients.data();
  float* __restrict state1 = spans.state1.data();
  float* __restrict state2 = spans.state2.data();
  for (std::size_t i = 0; i < spans.gradients.size(); ++i) {
    float first = state1[i], second = state2[i];
    gradients[i] = formulas::lamb_direction(scalars, parameters[i], gradients[i], first, second);
    state1[i] = first;
    state2[i] = second;
  }
}

LOCKSTEP_CLONES void update_statistics(const UpdateSpans& spans, const UpdateRule& rule) {
  for (std::size_t i = 0; i < spans.parameters.size(); ++i) {
    const float w = formulas::updated_statistic(rule, spans.parameters[i], spans.gradients[i]);
    spans.parameters[i] = w;
    if (!spans.average.empty()) spans.average[i] = w;
  }
}

}  // namespace lockstep::model::cpu
