#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

#include "model/cpu/clones.hpp"
#include "model/cpu/element_loops.hpp"

namespace lockstep::model::cpu {

namespace {

/// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split in two so that n times its first part is
/// exact (Cody & Waite 1980); exp(r) by the degree-6 polynomial of Cephes' expf. Branch-free, so that a loop of it
/// vectorises.
LOCKSTEP_INLINE float fast_exp(float x) {
  constexpr float kLowest = -87.33f, kHighest = 88.37f;
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float bounded = x > kHighest ? kHighest : x < kLowest ? kLowest : x;
  const float scaled = bounded * kLog2e;
  // A NaN converts to some integer; it comes back through r.
  const auto n = static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
  const auto exponent = static_cast<float>(n);
  const float r = (bounded - exponent * kLn2High) - exponent * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float mantissa = p * r * r + r + 1;
  const float power = std::bit_cast<float>((n + 127) << 23);
  return x < kLowest ? 0.0f : mantissa * power;
}

LOCKSTEP_INLINE float fast_sigmoid(float x) { return 1 / (1 + fast_exp(-x)); }

/// Near zero the odd polynomial of Cephes' tanhf, elsewhere 1 - 2 / (exp(2 |x|) + 1).
LOCKSTEP_INLINE float fast_tanh(float x) {
  const float magnitude = std::abs(x);
  const float far = 1 - 2 / (fast_exp(2 * magnitude) + 1);
  const float square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const float near = p * square * x + x;
  return magnitude < 0.625f ? near : std::copysign(far, x);
}

template <class Function>
LOCKSTEP_INLINE void activate_rows(std::span<float> y, std::size_t columns, std::span<const float> bias,
                                   Function function) {
  if (bias.empty()) {
    float* __restrict value = y.data();
    for (std::size_t i = 0; i < y.size(); ++i) value[i] = function(value[i]);
    return;
  }
  const float* __restrict shift = bias.data();
  for (std::size_t row = 0; row < y.size(); row += columns) {
    float* __restrict value = y.data() + row;
    for (std::size_t o = 0; o < columns; ++o) value[o] = function(value[o] + shift[o]);
  }
}

/// Elements of a block of logits that stays in the first-level cache between the passes over it.
constexpr std::size_t kBlockElements = 2048;

/// out[i] = exp(z[i] - greatest)
LOCKSTEP_INLINE void exp_below(const float* __restrict z, float greatest, std::size_t count, float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = fast_exp(z[i] - greatest);
}

}  // namespace

LOCKSTEP_CLONES void add_bias_and_activate(std::span<float> y, std::size_t columns, std::span<const float> bias,
                                           Activation activation) {
  switch (activation) {
    case Activation::none:
      if (!bias.empty()) activate_rows(y, columns, bias, [](float v) { return v; });
      return;
    case Activation::relu:
      // Written so that a NaN stays a NaN.
      return activate_rows(y, columns, bias, [](float v) { return v < 0 ? 0.0f : v; });
    case Activation::tanh:
      return activate_rows(y, columns, bias, [](float v) { return fast_tanh(v); });
    case Activation::sigmoid:
      return activate_rows(y, columns, bias, [](float v) { return fast_sigmoid(v); });
  }
}

LOCKSTEP_CLONES void exp_each(std::span<const float> x, std::span<float> y) {
  const float* __restrict from = x.data();
  float* __restrict to = y.data();
  for (std::size_t i = 0; i < x.size(); ++i) to[i] = fast_exp(from[i]);
}

LOCKSTEP_CLONES LossSums cross_entropy(std::span<float> z, std::size_t classes, std::span<const std::int32_t> labels,
                                       double scale, bool want_gradient) {
  LossSums sums;
  std::array<float, kBlockElements> block;
  const auto factor = static_cast<float>(scale);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    float* logits = z.data() + row * classes;
    const auto label = static_cast<std::size_t>(labels[row]);
    assert(label < classes);
    float greatest = logits[0];
    std::size_t answer = 0;
    for (std::size_t o = 1; o < classes; ++o) {
      if (logits[o] > greatest) {
        greatest = logits[o];
        answer = o;
      }
    }
    const float right = logits[label];
    double total = 0;
    for (std::size_t begin = 0; begin < classes; begin += kBlockElements) {
      const std::size_t count = std::min(kBlockElements, classes - begin);
      float* powers = want_gradient ? logits + begin : block.data();
      if (want_gradient) {
        for (std::size_t o = 0; o < count; ++o) powers[o] = fast_exp(powers[o] - greatest);
      } else {
        exp_below(logits + begin, greatest, count, powers);
      }
      for (std::size_t o = 0; o < count; ++o) total += static_cast<double>(powers[o]);
    }
    sums.loss += std::log(total) + static_cast<double>(greatest) - static_cast<double>(right);
    if (answer == label && !std::isnan(total)) sums.metric += 1;
    if (want_gradient) {
      const auto share = static_cast<float>(scale / total);
      for (std::size_t o = 0; o < classes; ++o) logits[o] *= share;
      logits[label] -= factor;
    }
  }
  return sums;
}

}  // namespace lockstep::model::cpu
