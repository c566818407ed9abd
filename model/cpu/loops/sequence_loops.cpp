#include "model/cpu/loops/sequence_loops.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/cpu/clones.hpp"
#include "model/cpu/loops/exponentials.hpp"
#include "model/formulas/gelu.hpp"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kLanes = 16;

/// Returns the sum over i of term(i), in kLanes parallel sums.
template <class Term>
LOCKSTEP_INLINE float sum_in_lanes(std::size_t count, Term term) {
  float lanes[kLanes] = {};
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::size_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// Returns the greatest element of x; any element if one is NaN.
LOCKSTEP_INLINE float greatest_of(const float* x, std::size_t count) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = x[0];
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  float greatest = lanes[0];
  for (const float lane : lanes) greatest = lane > greatest ? lane : greatest;
  for (std::size_t i = whole; i < count; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

/// formulas::gelu_share with our exp.
LOCKSTEP_INLINE float fast_gelu_share(float x) {
  constexpr auto kLinear = static_cast<float>(formulas::kTwoRootsTwoOverPi);
  constexpr auto kCubic = static_cast<float>(formulas::kGeluCubic);
  return 1 / (1 + fast_exp(-kLinear * x * (1 + kCubic * x * x)));
}

LOCKSTEP_INLINE float fast_gelu_derivative(float x) {
  constexpr auto kLinear = static_cast<float>(formulas::kTwoRootsTwoOverPi);
  constexpr auto kCubic = static_cast<float>(formulas::kGeluCubic);
  const float share = fast_gelu_share(x);
  return share + x * (share * (1 - share)) * (kLinear * (1 + 3 * kCubic * x * x));
}

/// Number of elements whose factors are computed at a time; they fit the first-level cache.
constexpr std::size_t kDropElements = 512;
/// Number of parallel draws.
constexpr std::size_t kDraws = 16;
/// Memory for the factors of kDropElements elements, which may begin within a group, in multiples of kDraws groups.
using DropBlock = std::array<float, kDropElements + 4 * kDraws>;

/// philox_words() for kDraws groups at once, from `group` on. A loop over calls would not vectorise; loops over lanes
/// in each round do.
LOCKSTEP_INLINE void draw_factors(const formulas::DropoutNumbers& numbers, std::uint64_t key, std::uint64_t group,
                                  float* __restrict out) {
  std::uint32_t c0[kDraws], c1[kDraws], c2[kDraws], c3[kDraws];
  for (std::size_t i = 0; i < kDraws; ++i) {
    c0[i] = static_cast<std::uint32_t>(group + i);
    c1[i] = static_cast<std::uint32_t>((group + i) >> 32);
    c2[i] = numbers.stream;
    c3[i] = 0;
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1
    for (std::size_t i = 0; i < kDraws; ++i) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0[i], product1 = std::uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<std::uint32_t>(product1);
      c3[i] = static_cast<std::uint32_t>(product0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const formulas::DropoutNumbers rule = numbers;
  for (std::size_t i = 0; i < kDraws; ++i) {
    out[4 * i] = formulas::dropout_factor(rule, c0[i]);
    out[4 * i + 1] = formulas::dropout_factor(rule, c1[i]);
    out[4 * i + 2] = formulas::dropout_factor(rule, c2[i]);
    out[4 * i + 3] = formulas::dropout_factor(rule, c3[i]);
  }
}

/// Computes the factors of elements [first, first + count), count <= kDropElements. Returns their start in the block.
LOCKSTEP_INLINE const float* block_factors(const formulas::DropoutNumbers& numbers, std::uint64_t key,
                                           std::uint64_t first, std::size_t count, DropBlock& block) {
  const std::size_t skipped = first % 4;
  for (std::size_t made = 0; made < skipped + count; made += 4 * kDraws) {
    draw_factors(numbers, key, (first + made) / 4, block.data() + made);
  }
  return block.data() + skipped;
}

}  // namespace

LOCKSTEP_CLONES void layer_norm(const NormRows& norm, const float* residual, float* sum, const float* shift, float* y) {
  const std::size_t width = norm.width;
  const float* __restrict scale = norm.scale;
  const float* __restrict offset = shift;
  for (std::size_t row = 0; row < norm.rows; ++row) {
    const float* x = norm.x + row * width;
    if (residual != nullptr) {
      const float* const other = residual + row * width;
      float* const to = sum + row * width;
      LOCKSTEP_INDEPENDENT
      for (std::size_t o = 0; o < width; ++o) to[o] = x[o] + other[o];
      x = to;
    }
    const float* __restrict value = x;
    const float mean = sum_in_lanes(width, [&](std::size_t o) { return value[o]; }) / static_cast<float>(width);
    const float squares = sum_in_lanes(width, [&](std::size_t o) { return (value[o] - mean) * (value[o] - mean); });
    const auto inverse = static_cast<float>(formulas::inverse_deviation(
        static_cast<double>(squares) / static_cast<double>(width), formulas::kLayerNormEpsilon));
    norm.mean[row] = mean;
    norm.inverse[row] = inverse;
    float* __restrict out = y + row * width;
    for (std::size_t o = 0; o < width; ++o) out[o] = scale[o] * ((value[o] - mean) * inverse) + offset[o];
  }
}

LOCKSTEP_CLONES void layer_norm_gradient(const NormRows& norm, const float* d_y, const float* d_residual,
                                         float* d_scale, float* d_shift, float* d_x) {
  const std::size_t width = norm.width;
  const float* __restrict scale = norm.scale;
  float* __restrict scale_sums = d_scale;
  float* __restrict shift_sums = d_shift;
  for (std::size_t row = 0; row < norm.rows; ++row) {
    const float* __restrict x = norm.x + row * width;
    const float* __restrict gradient = d_y + row * width;
    const float mean = norm.mean[row], inverse = norm.inverse[row];
    const float share = 1 / static_cast<float>(width);
    const float plain = share * sum_in_lanes(width, [&](std::size_t o) { return gradient[o] * scale[o]; });
    const float along =
        share * sum_in_lanes(width, [&](std::size_t o) { return gradient[o] * scale[o] * ((x[o] - mean) * inverse); });
    for (std::size_t o = 0; o < width; ++o) {
      scale_sums[o] += gradient[o] * ((x[o] - mean) * inverse);
      shift_sums[o] += gradient[o];
    }
    float* const out = d_x + row * width;
    const auto through = [&](std::size_t o) {
      return inverse * (gradient[o] * scale[o] - plain - (x[o] - mean) * inverse * along);
    };
    if (d_residual == nullptr) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t o = 0; o < width; ++o) out[o] = through(o);
    } else {
      const float* const past = d_residual + row * width;  // may be `out`
      LOCKSTEP_INDEPENDENT
      for (std::size_t o = 0; o < width; ++o) out[o] = through(o) + past[o];
    }
  }
}

LOCKSTEP_CLONES void gelu(std::span<float> x, std::size_t columns, std::span<const float> bias, std::span<float> y) {
  const float* __restrict shift = bias.data();
  for (std::size_t row = 0; row < x.size(); row += columns) {
    float* __restrict value = x.data() + row;
    float* __restrict out = y.data() + row;
    if (bias.empty()) {
      for (std::size_t o = 0; o < columns; ++o) out[o] = value[o] * fast_gelu_share(value[o]);
      continue;
    }
    for (std::size_t o = 0; o < columns; ++o) {
      const float v = value[o] + shift[o];
      value[o] = v;
      out[o] = v * fast_gelu_share(v);
    }
  }
}

LOCKSTEP_CLONES void gelu_gradient(std::span<const float> x, std::span<float> d_y, std::size_t columns,
                                   std::size_t begin, std::size_t end, std::span<float> d_bias) {
  float* __restrict sums = d_bias.data();
  for (std::size_t row = 0; row < x.size(); row += columns) {
    const float* __restrict value = x.data() + row;
    float* __restrict gradient = d_y.data() + row;
    for (std::size_t o = begin; o < end; ++o) gradient[o] *= fast_gelu_derivative(value[o]);
    if (d_bias.empty()) continue;
    for (std::size_t o = begin; o < end; ++o) sums[o] += gradient[o];
  }
}

LOCKSTEP_CLONES void dropout_factors(const formulas::DropoutNumbers& numbers, std::uint64_t key, std::uint64_t first,
                                     std::span<float> out) {
  DropBlock block;
  for (std::size_t done = 0; done < out.size(); done += kDropElements) {
    const std::size_t count = std::min(out.size() - done, kDropElements);
    std::copy_n(block_factors(numbers, key, first + done, count, block), count, out.data() + done);
  }
}

LOCKSTEP_CLONES void drop(const formulas::DropoutNumbers& numbers, std::uint64_t key, std::uint64_t first,
                          std::span<const float> x, std::span<float> y) {
  DropBlock block;
  for (std::size_t done = 0; done < x.size(); done += kDropElements) {
    const std::size_t count = std::min(x.size() - done, kDropElements);
    const float* const factor = block_factors(numbers, key, first + done, count, block);
    const float* const from = x.data() + done;
    float* const to = y.data() + done;
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor[i];
  }
}

LOCKSTEP_CLONES float softmax_row(std::span<float> scores, std::size_t keys, float scale) {
  float* __restrict value = scores.data();
  if (keys == 0) {
    for (std::size_t j = 0; j < scores.size(); ++j) value[j] = 0;
    return 0;
  }
  const float shift = scale * greatest_of(value, keys);
  for (std::size_t j = 0; j < keys; ++j) value[j] = fast_exp(scale * value[j] - shift);
  const float total = sum_in_lanes(keys, [&](std::size_t j) { return value[j]; });
  const float share = 1 / total;
  for (std::size_t j = 0; j < keys; ++j) value[j] *= share;
  for (std::size_t j = keys; j < scores.size(); ++j) value[j] = 0;
  return shift + std::log(total);
}

LOCKSTEP_CLONES void probability_row(std::span<float> scores, std::size_t keys, float scale, float log_sum) {
  float* __restrict value = scores.data();
  for (std::size_t j = 0; j < keys; ++j) value[j] = fast_exp(scale * value[j] - log_sum);
  for (std::size_t j = keys; j < scores.size(); ++j) value[j] = 0;
}

LOCKSTEP_CLONES void score_gradient_row(std::span<const float> p, const float* factors, float product, float scale,
                                        std::span<float> d_p) {
  const float* __restrict probability = p.data();
  const float* __restrict factor = factors;
  float* __restrict gradient = d_p.data();
  if (factors == nullptr) {
    for (std::size_t j = 0; j < p.size(); ++j) gradient[j] = probability[j] * (gradient[j] - product) * scale;
  } else {
    for (std::size_t j = 0; j < p.size(); ++j) {
      gradient[j] = probability[j] * (factor[j] * gradient[j] - product) * scale;
    }
  }
}

LOCKSTEP_CLONES void multiply_each(std::span<float> x, const float* factors) {
  float* __restrict value = x.data();
  const float* __restrict factor = factors;
  for (std::size_t i = 0; i < x.size(); ++i) value[i] *= factor[i];
}

LOCKSTEP_CLONES float dot(std::span<const float> x, std::span<const float> y) {
  const float* __restrict left = x.data();
  const float* __restrict right = y.data();
  return sum_in_lanes(x.size(), [&](std::size_t i) { return left[i] * right[i]; });
}

LOCKSTEP_CLONES void lstm_row(const LstmRow& row, float* h) {
  float* __restrict input = row.gates;
  float* __restrict forget = row.gates + row.hidden;
  float* __restrict candidate = row.gates + 2 * row.hidden;
  float* __restrict output = row.gates + 3 * row.hidden;
  const float* __restrict before = row.cell_before;
  float* __restrict after = row.cell;
  float* __restrict shown = h;
  LOCKSTEP_INDEPENDENT
  for (std::size_t u = row.begin; u < row.end; ++u) {
    const float i = fast_sigmoid(input[u]), f = fast_sigmoid(forget[u]);
    const float g = fast_tanh(candidate[u]), o = fast_sigmoid(output[u]);
    const float cell = f * before[u] + i * g;
    input[u] = i;
    forget[u] = f;
    candidate[u] = g;
    output[u] = o;
    after[u] = cell;
    shown[u] = o * fast_tanh(cell);
  }
}

LOCKSTEP_CLONES void lstm_row_back(const LstmRow& row, const float* d_hidden, float* d_cell) {
  float* __restrict input = row.gates;
  float* __restrict forget = row.gates + row.hidden;
  float* __restrict candidate = row.gates + 2 * row.hidden;
  float* __restrict output = row.gates + 3 * row.hidden;
  const float* __restrict before = row.cell_before;
  const float* __restrict after = row.cell;
  const float* __restrict d_h = d_hidden;
  float* __restrict d_c = d_cell;
  LOCKSTEP_INDEPENDENT
  for (std::size_t u = row.begin; u < row.end; ++u) {
    const float i = input[u], f = forget[u], g = candidate[u], o = output[u];
    const float shown = fast_tanh(after[u]);
    const float d = d_c[u] + d_h[u] * o * (1 - shown * shown);
    input[u] = d * g * (i * (1 - i));
    forget[u] = d * before[u] * (f * (1 - f));
    candidate[u] = d * i * (1 - g * g);
    output[u] = d_h[u] * shown * (o * (1 - o));
    d_c[u] = d * f;
  }
}

LOCKSTEP_CLONES void gru_row(const GruRow& row, const float* bias, float* h) {
  float* __restrict reset = row.gates;
  float* __restrict update = row.gates + row.hidden;
  float* __restrict candidate = row.gates + 2 * row.hidden;
  const float* __restrict reset_product = row.products;
  const float* __restrict update_product = row.products + row.hidden;
  float* __restrict product = row.products + 2 * row.hidden;
  const float* __restrict reset_bias = bias;
  const float* __restrict update_bias = bias + row.hidden;
  const float* __restrict product_bias = bias + 2 * row.hidden;
  const float* __restrict before = row.hidden_before;
  float* __restrict after = h;
  LOCKSTEP_INDEPENDENT
  for (std::size_t u = row.begin; u < row.end; ++u) {
    const float r = fast_sigmoid(reset[u] + (reset_product[u] + reset_bias[u]));
    const float z = fast_sigmoid(update[u] + (update_product[u] + update_bias[u]));
    const float p = product[u] + product_bias[u];
    const float n = fast_tanh(candidate[u] + r * p);
    reset[u] = r;
    update[u] = z;
    candidate[u] = n;
    product[u] = p;
    after[u] = n + z * (before[u] - n);
  }
}

LOCKSTEP_CLONES void gru_row_back(const GruRow& row, const float* d_hidden, float* d_before) {
  float* __restrict reset = row.gates;
  float* __restrict update = row.gates + row.hidden;
  float* __restrict candidate = row.gates + 2 * row.hidden;
  float* __restrict reset_product = row.products;
  float* __restrict update_product = row.products + row.hidden;
  float* __restrict product = row.products + 2 * row.hidden;
  const float* __restrict before = row.hidden_before;
  const float* __restrict d_h = d_hidden;
  float* __restrict d_earlier = d_before;
  if (d_earlier != nullptr) {
    LOCKSTEP_INDEPENDENT
    for (std::size_t u = row.begin; u < row.end; ++u) d_earlier[u] += d_h[u] * update[u];
  }
  LOCKSTEP_INDEPENDENT
  for (std::size_t u = row.begin; u < row.end; ++u) {
    const float r = reset[u], z = update[u], n = candidate[u], p = product[u];
    const float d_new = d_h[u] * (1 - z) * (1 - n * n);
    const float d_update = d_h[u] * (before[u] - n) * (z * (1 - z)), d_reset = d_new * p * (r * (1 - r));
    reset[u] = d_reset;
    update[u] = d_update;
    candidate[u] = d_new;
    reset_product[u] = d_reset;
    update_product[u] = d_update;
    product[u] = d_new * r;
  }
}

}  // namespace lockstep::model::cpu
