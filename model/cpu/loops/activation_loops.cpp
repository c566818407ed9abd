#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "model/cpu/clones.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/exponentials.hpp"
#include "model/formulas/elementwise.hpp"
#include "model/formulas/losses.hpp"

namespace lockstep::model::cpu {

namespace {

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

LOCKSTEP_INLINE void exp_loop(const float* from, float* to, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = fast_exp(from[i]);
}

struct FastExp {
  LOCKSTEP_INLINE static float of(float x) { return fast_exp(x); }
  LOCKSTEP_INLINE static float tanh_of(float x) { return fast_tanh(x); }
  LOCKSTEP_INLINE static float normal_share_of(float x) { return fast_normal_share(x); }
  LOCKSTEP_INLINE static float log1p_of(float x) { return std::log1p(x); }
  LOCKSTEP_INLINE static float log1p_of_share(float x) { return fast_log1p_of_share(x); }
};

template <Function kFunction>
LOCKSTEP_INLINE void apply_each(const float* x, float parameter, float* y, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) y[i] = formulas::value_of<kFunction, FastExp>(x[i], parameter);
}

template <Function kFunction>
LOCKSTEP_INLINE void apply_slope_to_each(const float* read, const float* d_y, float parameter, float* d_x,
                                         std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    d_x[i] = d_y[i] * formulas::slope_of<kFunction, FastExp>(read[i], parameter);
  }
}

/// Elements of a block of logits, which stays in the first-level cache between the passes over it.
constexpr std::size_t kBlockElements = 2048;

/// Properties of a row of logits that need no exponentials.
struct Row {
  float greatest;
  float right;      ///< logit of the label
  bool is_correct;  ///< the label has the first greatest logit
  bool is_near;     ///< the label's logit is among the first five, if requested
  double logits;    ///< sum of the logits, if the target is smoothed
};

/// Returns the number of classes that rank before the label (formulas::comes_before).
LOCKSTEP_INLINE std::int64_t count_before(const float* logits, std::size_t classes, std::int32_t label) {
  const float right = logits[static_cast<std::size_t>(label)];
  std::int64_t before = 0;
  for (std::size_t o = 0; o < classes; ++o) {
    before += formulas::comes_before(logits[o], static_cast<std::int64_t>(o), right, label) ? 1 : 0;
  }
  return before;
}

/// Adds in eight parallel sums, so that additions do not wait for each other.
LOCKSTEP_INLINE double sum_of(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t o = 0; o < whole; o += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[o + lane]);
  }
  double total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (std::size_t o = whole; o < count; ++o) total += static_cast<double>(values[o]);
  return total;
}

/// Returns the greatest value of a row, in parallel lanes. If the row has a NaN, the result is any of its values.
LOCKSTEP_INLINE float greatest_of(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  float greatest = values[0];
  const std::size_t whole = count / kLanes * kLanes;
  if (whole > 0) {
    float lanes[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = values[lane];
    for (std::size_t o = kLanes; o < whole; o += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = values[o + lane] > lanes[lane] ? values[o + lane] : lanes[lane];
      }
    }
    for (const float lane : lanes) greatest = lane > greatest ? lane : greatest;
  }
  for (std::size_t o = whole; o < count; ++o) greatest = values[o] > greatest ? values[o] : greatest;
  return greatest;
}

LOCKSTEP_INLINE Row read_row(const float* logits, std::size_t classes, std::int32_t label, const LossOptions& options) {
  assert(label >= 0 && static_cast<std::size_t>(label) < classes);
  const float greatest = greatest_of(logits, classes), right = logits[static_cast<std::size_t>(label)];
  return {.greatest = greatest,
          .right = right,
          .is_correct = right == greatest && std::find(logits, logits + label, greatest) == logits + label,
          .is_near = !options.want_gradient && count_before(logits, classes, label) < formulas::kTop,
          .logits = options.smoothing > 0 ? sum_of(logits, classes) : 0};
}

LOCKSTEP_INLINE void add_row(LossSums& sums, const Row& row, double total, const formulas::SoftTarget& target) {
  sums.loss += std::log(total) + static_cast<double>(row.greatest) - target.of_label * static_cast<double>(row.right) -
               target.of_each * row.logits;
  // A row with a NaN may seem correct, because comparisons with NaN are false; its total is NaN.
  if (std::isnan(total)) return;
  if (row.is_correct) sums.metric += 1;
  if (row.is_near && !std::isnan(row.right)) sums.found += 1;
}

/// Returns the sum of exp(logit - greatest) over a row of any length; does not change the row.
LOCKSTEP_INLINE double wide_total(const float* logits, std::size_t classes, float greatest, float* block) {
  double total = 0;
  for (std::size_t begin = 0; begin < classes; begin += kBlockElements) {
    const std::size_t count = std::min(kBlockElements, classes - begin);
    for (std::size_t o = 0; o < count; ++o) block[o] = logits[begin + o] - greatest;
    exp_loop(block, block, count);
    total += sum_of(block, count);
  }
  return total;
}

}  // namespace

LOCKSTEP_CLONES void add_bias_and_activate(std::span<float> y, std::size_t columns, std::span<const float> bias,
                                           Activation activation) {
  switch (activation) {
    case Activation::none:
      if (!bias.empty()) activate_rows(y, columns, bias, [](float v) { return v; });
      return;
    case Activation::relu:
      // A NaN stays a NaN.
      return activate_rows(y, columns, bias, [](float v) { return v < 0 ? 0.0f : v; });
    case Activation::tanh:
      return activate_rows(y, columns, bias, [](float v) { return fast_tanh(v); });
    case Activation::sigmoid:
      return activate_rows(y, columns, bias, [](float v) { return fast_sigmoid(v); });
  }
}

LOCKSTEP_CLONES void exp_each(std::span<const float> x, std::span<float> y) { exp_loop(x.data(), y.data(), x.size()); }

LOCKSTEP_CLONES void apply(const Elementwise& f, std::span<const float> x, std::span<float> y) {
  switch (f.function) {
    case Function::relu:
      return apply_each<Function::relu>(x.data(), f.parameter, y.data(), x.size());
    case Function::leaky_relu:
      return apply_each<Function::leaky_relu>(x.data(), f.parameter, y.data(), x.size());
    case Function::elu:
      return apply_each<Function::elu>(x.data(), f.parameter, y.data(), x.size());
    case Function::tanh:
      return apply_each<Function::tanh>(x.data(), f.parameter, y.data(), x.size());
    case Function::sigmoid:
      return apply_each<Function::sigmoid>(x.data(), f.parameter, y.data(), x.size());
    case Function::silu:
      return apply_each<Function::silu>(x.data(), f.parameter, y.data(), x.size());
    case Function::gelu:
      return apply_each<Function::gelu>(x.data(), f.parameter, y.data(), x.size());
    case Function::gelu_exact:
      return apply_each<Function::gelu_exact>(x.data(), f.parameter, y.data(), x.size());
    case Function::softplus:
      return apply_each<Function::softplus>(x.data(), f.parameter, y.data(), x.size());
    case Function::log1p:
      return apply_each<Function::log1p>(x.data(), f.parameter, y.data(), x.size());
    case Function::hard_sigmoid:
      return apply_each<Function::hard_sigmoid>(x.data(), f.parameter, y.data(), x.size());
    case Function::hard_swish:
      return apply_each<Function::hard_swish>(x.data(), f.parameter, y.data(), x.size());
    case Function::scale:
      return apply_each<Function::scale>(x.data(), f.parameter, y.data(), x.size());
  }
}

LOCKSTEP_CLONES void apply_slope(const Elementwise& f, std::span<const float> read, std::span<const float> d_y,
                                 std::span<float> d_x) {
  const float* const v = read.empty() ? d_y.data() : read.data();
  switch (f.function) {
    case Function::relu:
      return apply_slope_to_each<Function::relu>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::leaky_relu:
      return apply_slope_to_each<Function::leaky_relu>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::elu:
      return apply_slope_to_each<Function::elu>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::tanh:
      return apply_slope_to_each<Function::tanh>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::sigmoid:
      return apply_slope_to_each<Function::sigmoid>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::silu:
      return apply_slope_to_each<Function::silu>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::gelu:
      return apply_slope_to_each<Function::gelu>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::gelu_exact:
      return apply_slope_to_each<Function::gelu_exact>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::softplus:
      return apply_slope_to_each<Function::softplus>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::log1p:
      return apply_slope_to_each<Function::log1p>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::hard_sigmoid:
      return apply_slope_to_each<Function::hard_sigmoid>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::hard_swish:
      return apply_slope_to_each<Function::hard_swish>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
    case Function::scale:
      return apply_slope_to_each<Function::scale>(v, d_y.data(), f.parameter, d_x.data(), d_y.size());
  }
}

LOCKSTEP_CLONES LossSums cross_entropy(std::span<float> z, std::size_t classes, std::span<const std::int32_t> labels,
                                       const LossOptions& options) {
  const bool want_gradient = options.want_gradient;
  const formulas::SoftTarget target = formulas::soft_target(options.smoothing, static_cast<std::int64_t>(classes));
  LossSums sums;
  std::array<float, kBlockElements> block;
  std::array<Row, kBlockElements> rows;
  // Processes as many rows at a time as fill a block, so that exponentials run over one long array even with few
  // classes.
  const std::size_t rows_per_block = std::max<std::size_t>(1, kBlockElements / classes);
  for (std::size_t begin = 0; begin < labels.size(); begin += rows_per_block) {
    const std::size_t count = std::min(rows_per_block, labels.size() - begin);
    float* const logits = z.data() + begin * classes;
    float* const powers = want_gradient ? logits : block.data();
    const bool fits = want_gradient || classes <= kBlockElements;
    for (std::size_t b = 0; b < count; ++b) {
      rows[b] = read_row(logits + b * classes, classes, labels[begin + b], options);
      for (std::size_t o = b * classes; fits && o < (b + 1) * classes; ++o) powers[o] = logits[o] - rows[b].greatest;
    }
    if (!fits) {
      add_row(sums, rows[0], wide_total(logits, classes, rows[0].greatest, block.data()), target);
      continue;
    }
    exp_loop(powers, powers, count * classes);
    for (std::size_t b = 0; b < count; ++b) {
      float* const row = powers + b * classes;
      const double total = sum_of(row, classes);
      add_row(sums, rows[b], total, target);
      if (!want_gradient) continue;
      const auto share = static_cast<float>(options.scale / total);
      const formulas::ScaledTarget part = formulas::scaled(target, static_cast<float>(options.scale));
      for (std::size_t o = 0; o < classes; ++o) row[o] = row[o] * share - part.of_each;
      row[static_cast<std::size_t>(labels[begin + b])] -= part.of_label;
    }
  }
  return sums;
}

LOCKSTEP_CLONES LossSums soft_cross_entropy(std::span<float> z, std::span<const float> targets, std::size_t classes,
                                            const LossOptions& options) {
  struct SoftRow {
    float greatest;
    double targets, products;  ///< sums of the targets, and of targets * logits
    bool is_correct, is_near;
  };
  const bool want_gradient = options.want_gradient;
  const float smoothing = options.smoothing;
  const auto of_each = smoothing / static_cast<float>(classes);
  const auto wanted = [&](float target) { return (1 - smoothing) * target + of_each; };
  LossSums sums;
  std::array<float, kBlockElements> block;
  std::array<SoftRow, kBlockElements> rows;
  const std::size_t rows_per_block = std::max<std::size_t>(1, kBlockElements / classes), all = z.size() / classes;
  for (std::size_t begin = 0; begin < all; begin += rows_per_block) {
    const std::size_t count = std::min(rows_per_block, all - begin);
    float* const logits = z.data() + begin * classes;
    const float* const target = targets.data() + begin * classes;
    float* const powers = want_gradient ? logits : block.data();
    const bool fits = want_gradient || classes <= kBlockElements;
    for (std::size_t b = 0; b < count; ++b) {
      const float *const row = logits + b * classes, *const t = target + b * classes;
      const auto label = static_cast<std::int32_t>(std::max_element(t, t + classes) - t);
      const float greatest = greatest_of(row, classes);
      SoftRow& here = rows[b];
      here = {
          .greatest = greatest,
          .targets = 0,
          .products = 0,
          .is_correct = row[label] == greatest && std::find(row, row + label, greatest) == row + label,
          .is_near = !want_gradient && count_before(row, classes, label) < formulas::kTop && row[label] == row[label]};
      for (std::size_t o = 0; o < classes; ++o) {
        const auto share = static_cast<double>(wanted(t[o]));
        here.targets += share;
        if (share != 0) here.products += share * static_cast<double>(row[o]);
      }
      for (std::size_t o = 0; fits && o < classes; ++o) powers[b * classes + o] = row[o] - greatest;
    }
    if (fits) exp_loop(powers, powers, count * classes);
    for (std::size_t b = 0; b < count; ++b) {
      const SoftRow& here = rows[b];
      float* const row = powers + b * classes;
      const double total =
          fits ? sum_of(row, classes) : wide_total(logits + b * classes, classes, here.greatest, block.data());
      sums.loss += here.targets * (std::log(total) + static_cast<double>(here.greatest)) - here.products;
      if (!std::isnan(total)) {
        sums.metric += here.is_correct ? 1 : 0;
        sums.found += here.is_near ? 1 : 0;
      }
      if (!want_gradient) continue;
      const auto share = static_cast<float>(options.scale * here.targets / total);
      const auto scale = static_cast<float>(options.scale);
      const float* const t = target + b * classes;
      for (std::size_t o = 0; o < classes; ++o) row[o] = row[o] * share - wanted(t[o]) * scale;
    }
  }
  return sums;
}

LOCKSTEP_CLONES LossSums soft_dice(std::span<float> z, std::size_t columns, std::size_t classes,
                                   std::span<const std::int32_t> labels, const LossOptions& options,
                                   std::span<double> work) {
  const std::span<double> shared = work.first(classes), sizes = work.subspan(classes, classes);
  std::ranges::fill(work.first(2 * classes), 0.0);
  const bool want_gradient = options.want_gradient, fits = want_gradient || classes <= kBlockElements;
  std::array<float, kBlockElements> block;
  LossSums sums;
  struct DiceRow {
    float greatest;
    bool is_correct;
  };
  std::array<DiceRow, kBlockElements> rows;
  const std::size_t rows_per_block = columns == classes ? std::max<std::size_t>(1, kBlockElements / classes) : 1;
  for (std::size_t begin = 0; begin < labels.size(); begin += rows_per_block) {
    const std::size_t count = std::min(rows_per_block, labels.size() - begin);
    float* const logits = z.data() + begin * columns;
    float* const powers = want_gradient ? logits : block.data();
    for (std::size_t b = 0; b < count; ++b) {
      const float* const row = logits + b * columns;
      const std::int32_t label = labels[begin + b];
      const float greatest = greatest_of(row, classes);
      const bool is_greatest = label >= 0 && row[label] == greatest;
      rows[b] = {greatest, is_greatest && std::find(row, row + label, greatest) == row + label};
      for (std::size_t o = 0; fits && o < classes; ++o) powers[b * classes + o] = row[o] - greatest;
    }
    if (fits) exp_loop(powers, powers, count * classes);
    for (std::size_t b = 0; b < count; ++b) {
      const std::int32_t label = labels[begin + b];
      if (label < 0) continue;
      float* const row = powers + b * classes;
      const float* const stored = logits + b * columns;
      const float greatest = rows[b].greatest;
      const double total = fits ? sum_of(row, classes) : wide_total(stored, classes, greatest, block.data());
      if (rows[b].is_correct && !std::isnan(total)) sums.metric += 1;
      const auto share = static_cast<float>(1 / total);
      for (std::size_t o = 0; o < classes; ++o) {
        const float p = (fits ? row[o] : std::exp(stored[o] - greatest)) * share;
        if (want_gradient) row[o] = p;
        sizes[o] += static_cast<double>(p);
        if (o != static_cast<std::size_t>(label)) continue;
        shared[o] += static_cast<double>(p);
        sizes[o] += 1;
      }
    }
  }
  const auto positions = static_cast<double>(labels.size());
  for (std::size_t o = 0; o < classes; ++o) {
    const formulas::DiceClass of_class = formulas::dice_class(shared[o], sizes[o], static_cast<std::int64_t>(classes));
    sums.loss += of_class.loss * positions;
    shared[o] = of_class.each * positions * options.scale;
    sizes[o] = of_class.of_label * positions * options.scale;
  }
  for (std::size_t b = 0; want_gradient && b < labels.size(); ++b) {
    float* const row = z.data() + b * columns;
    const std::int32_t label = labels[b];
    if (label < 0) {
      std::fill(row, row + columns, 0.0f);
      continue;
    }
    double mean = -static_cast<double>(row[label]) * sizes[static_cast<std::size_t>(label)];
    for (std::size_t o = 0; o < classes; ++o) mean += static_cast<double>(row[o]) * shared[o];
    const float right = row[label];
    for (std::size_t o = 0; o < classes; ++o) {
      row[o] = static_cast<float>(static_cast<double>(row[o]) * (shared[o] - mean));
    }
    row[label] -= static_cast<float>(static_cast<double>(right) * sizes[static_cast<std::size_t>(label)]);
    std::fill(row + classes, row + columns, 0.0f);
  }
  return sums;
}

LOCKSTEP_CLONES LossSums binary_cross_entropy(std::span<float> z, std::span<const float> targets, std::size_t labels,
                                              const LossOptions& options) {
  // The sum of log(1 + e), e at most 1, is the log of a product, and the product stays below 2^kFactors.
  constexpr std::size_t kLanes = 8, kFactors = 512;
  const float smoothing = options.smoothing;
  const auto each = 1 / static_cast<double>(labels);
  const auto factor = static_cast<float>(options.scale * each);
  LossSums sums;
  std::array<float, kFactors> powers;
  for (std::size_t begin = 0; begin < z.size(); begin += kFactors) {
    const std::size_t count = std::min(kFactors, z.size() - begin);
    float* __restrict logit = z.data() + begin;
    const float* __restrict target = targets.data() + begin;
    for (std::size_t i = 0; i < count; ++i) powers[i] = -std::abs(logit[i]);
    exp_loop(powers.data(), powers.data(), count);
    double products[kLanes], costs[kLanes] = {};
    std::fill(std::begin(products), std::end(products), 1.0);
    std::int32_t right = 0, found = 0;
    const auto take = [&](std::size_t lane, std::size_t i) {
      products[lane] *= 1 + static_cast<double>(powers[i]);
      const float wanted = formulas::smoothed_label(target[i], smoothing);
      costs[lane] += static_cast<double>(logit[i] > 0 ? logit[i] : 0.0f) -
                     static_cast<double>(wanted) * static_cast<double>(logit[i]);
    };
    const std::size_t whole = count / kLanes * kLanes;
    for (std::size_t at = 0; at < whole; at += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, at + lane);
    }
    for (std::size_t i = whole; i < count; ++i) take(i - whole, i);
    for (std::size_t i = 0; i < count; ++i) {
      const bool said = logit[i] > 0, there = target[i] > 0.5f, number = logit[i] == logit[i];
      right += said == there && number ? 1 : 0;
      found += said && there ? 1 : 0;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums.loss += std::log(products[lane]) + costs[lane];
    sums.metric += right;
    sums.found += found;
    for (std::size_t i = 0; options.want_gradient && i < count; ++i) {
      const float share = (logit[i] < 0 ? powers[i] : 1.0f) / (1 + powers[i]);
      logit[i] = (share - formulas::smoothed_label(target[i], smoothing)) * factor;
    }
  }
  return {.loss = sums.loss * each, .metric = sums.metric * each, .found = sums.found * each};
}

}  // namespace lockstep::model::cpu
