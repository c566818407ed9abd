// Compares the formulas of model/formulas/ with float64, for ordinary and special values. optimizer_test.cpp,
// activation_loops_test.cpp and cuda_kernels_test.cpp test updates and whole rows of a softmax over arrays.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "model/formulas/activations.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/formulas/gate.hpp"
#include "model/formulas/losses.hpp"
#include "model/formulas/update.hpp"

namespace lockstep::model::formulas {
namespace {

constexpr float kTiny = std::numeric_limits<float>::denorm_min(), kSmall = std::numeric_limits<float>::min();
constexpr float kMax = std::numeric_limits<float>::max();

std::vector<float> special_values() {
  std::vector<float> values{0.0f,    -0.0f, kTiny,  -kTiny, kSmall, -kSmall,   1e-20f,     0.5f,  -0.5f,  1.0f,
                            -1.0f,   3.0f,  -3.0f,  20.0f,  -20.0f, 88.0f,     -88.0f,     89.0f, -89.0f, 104.0f,
                            -104.0f, 1e10f, -1e10f, kMax,   -kMax,  kInfinity, -kInfinity, kNan};
  for (int i = -400; i <= 400; ++i) values.push_back(static_cast<float>(i) / 37);
  return values;
}

/// Requires both to be NaN, equal infinities, or within the relative error; below the normal numbers, any tiny value
/// passes.
void expect_same(float got, double expected, double relative, float at) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << "at " << at;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(static_cast<double>(got), expected) << "at " << at;
  } else {
    EXPECT_NEAR(static_cast<double>(got), expected, relative * std::abs(expected) + 1e-38) << "at " << at;
  }
}

TEST(ActivationFormulas, MatchFloat64) {
  for (const float v : special_values()) {
    const double x = v;
    expect_same(activate<Activation::none>(v), x, 0, v);
    expect_same(activate<Activation::relu>(v), std::isnan(x) ? x : std::max(x, 0.0), 0, v);
    expect_same(activate<Activation::tanh>(v), std::tanh(x), 3e-7, v);
    expect_same(activate<Activation::sigmoid>(v), 1 / (1 + std::exp(-x)), 3e-7, v);
  }
}

TEST(ActivationFormulas, DerivativesByTheValueMatchFloat64) {
  for (const float y : {0.0f, -0.0f, 1e-30f, 0.25f, -0.25f, 0.999f, 1.0f, -1.0f, 7.0f, kNan}) {
    for (const float d : {0.0f, 1.0f, -2.5f, 1e30f, kInfinity, kNan}) {
      const double value = y, gradient = d;
      expect_same(gradient_before<Activation::none>(y, d), gradient, 0, y);
      expect_same(gradient_before<Activation::relu>(y, d), y > 0 ? gradient : 0, 0, y);
      expect_same(gradient_before<Activation::tanh>(y, d), gradient * (1 - value * value), 1e-4, y);
      expect_same(gradient_before<Activation::sigmoid>(y, d), gradient * (value * (1 - value)), 1e-4, y);
    }
  }
}

TEST(Bfloat16, RoundsToTheNearestNumberAndToEvenInTheMiddle) {
  for (std::uint32_t upper = 0; upper < 0x7f80; ++upper) {
    const auto below = std::bit_cast<float>(upper << 16);
    // The next number, or the one that would follow the largest.
    const double above =
        upper == 0x7f7f ? std::ldexp(1.0, 128) : static_cast<double>(std::bit_cast<float>((upper + 1) << 16));
    for (const std::uint32_t lower : {0u, 1u, 0x4000u, 0x7fffu, 0x8000u, 0x8001u, 0xc000u, 0xffffu}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      const double to_below = static_cast<double>(value) - static_cast<double>(below);
      const double to_above = above - static_cast<double>(value);
      const bool up = to_above < to_below || (to_above == to_below && upper % 2 == 1);
      const std::uint32_t expected = up ? upper + 1 : upper;
      ASSERT_EQ(bfloat16_bits(value), expected) << value;
      ASSERT_EQ(bfloat16_bits(-value), expected | 0x8000u) << value;
    }
  }
  EXPECT_EQ(bfloat16_bits(kMax), 0x7f80) << "overflow is infinity";
  EXPECT_EQ(bfloat16_bits(kInfinity), 0x7f80);
  EXPECT_EQ(bfloat16_bits(-kInfinity), 0xff80);
}

TEST(Bfloat16, KeepsEveryNanQuiet) {
  for (const std::uint32_t mantissa : {1u, 0x8000u, 0xffffu, 0x10000u, 0x400000u, 0x7fffffu}) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      EXPECT_EQ(bfloat16_bits(std::bit_cast<float>(sign | 0x7f800000u | mantissa)), 0x7fff) << mantissa;
    }
  }
}

TEST(Bfloat16, ComesBackAsItWas) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = from_bfloat16_bits(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    if (!std::isnan(value)) {
      ASSERT_EQ(bfloat16_bits(value), bits);
    }
  }
}

TEST(Gate, IsOpenForFiniteSquaresWithoutObstacles) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(may_update(0, 0));
  EXPECT_TRUE(may_update(-0.0, 1e300));
  for (const double bad : {nan, infinity, -infinity}) {
    EXPECT_FALSE(may_update(0, bad));
    EXPECT_FALSE(may_update(bad, 1));
  }
  EXPECT_FALSE(may_update(1, 1));
  EXPECT_FALSE(may_update(1e-300, 1));
}

TEST(ClipFactor, IsComputedInDouble) {
  EXPECT_EQ(clip_factor(1e200, 0), 1);
  EXPECT_EQ(clip_factor(1e200, -1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_EQ(clip_factor(4, 2), 1) << "the norm itself is not clipped";
  EXPECT_EQ(clip_factor(16, 1), 0.25f);
  // Squares that overflow fp32.
  EXPECT_EQ(clip_factor(1e80, 1e30), 1e-10f);
  EXPECT_EQ(clip_factor(9, 1), static_cast<float>(1.0 / 3));
}

TEST(SoftmaxParts, AreTheSameInOnePieceAndInMany) {
  const std::vector<float> row{1, -kInfinity, 7, 3, 7, -2, -kInfinity, 80, 79.5f, 80, -100};
  double total = 0;
  for (const float v : row) total += std::exp(static_cast<double>(v) - 80);
  const auto part_of = [&](std::size_t begin, std::size_t end) {
    SoftmaxPart part;
    for (std::size_t i = begin; i < end; ++i) {
      raise_greatest(part, row[i], static_cast<std::int32_t>(i));
      add_logit(part, row[i]);
    }
    return part;
  };
  for (std::size_t cut = 0; cut <= row.size(); ++cut) {
    for (const bool swapped : {false, true}) {
      const SoftmaxPart a = part_of(0, cut), b = part_of(cut, row.size());
      const SoftmaxPart both = swapped ? merge(b, a) : merge(a, b);
      EXPECT_EQ(both.greatest, 80);
      EXPECT_EQ(both.index, 7) << "the first of the greatest";
      EXPECT_NEAR(static_cast<double>(both.total), total, 1e-6 * total) << cut;
      EXPECT_TRUE(is_correct(both, 7));
      EXPECT_FALSE(is_correct(both, 9));
      EXPECT_NEAR(cross_entropy_of(both, 79.5f), std::log(total) + 0.5, 1e-6);
    }
  }
  const SoftmaxPart none = merge(SoftmaxPart{}, SoftmaxPart{});
  EXPECT_EQ(none.total, 0);
  EXPECT_EQ(none.greatest, -kInfinity);
}

TEST(SquaredError, IsTakenInDouble) {
  LossSums sums;
  const OutputError<ErrorLoss::squared> error{.factor = 0.25f};
  error.add(1e30f, -1e30f, sums);
  EXPECT_DOUBLE_EQ(sums.loss, 4 * static_cast<double>(1e30f) * static_cast<double>(1e30f));
  EXPECT_DOUBLE_EQ(sums.metric, 2 * static_cast<double>(1e30f));
  error.add(kNan, 0, sums);
  EXPECT_TRUE(std::isnan(sums.loss));
  EXPECT_TRUE(std::isnan(sums.metric));
  EXPECT_EQ(error.gradient(3, 1), 0.5f);
}

TEST(BinaryCrossEntropy, OverflowsForNoLogit) {
  LossSums sums;
  const BinaryCrossEntropy loss{.factor = 0.5f, .smoothing = 0};
  loss.add(1e30f, 1, sums);
  loss.add(-1e30f, 0, sums);
  EXPECT_EQ(sums.loss, 0);
  loss.add(-200, 1, sums);
  EXPECT_EQ(sums.loss, 200);
  EXPECT_EQ(sums.metric, 2);
  EXPECT_EQ(sums.found, 1);
  EXPECT_EQ(loss.gradient(-1e30f, 1), -0.5f);
  EXPECT_EQ(loss.gradient(1e30f, 1), 0);
  EXPECT_EQ((BinaryCrossEntropy{.factor = 1, .smoothing = 0.5f}.gradient(0, 1)), -0.25f) << "three quarters are wanted";
  loss.add(kNan, 0, sums);
  EXPECT_TRUE(std::isnan(sums.loss));
  EXPECT_EQ(sums.metric, 2) << "a NaN is no answer";
}

TEST(UpdateFormula, ClipsValuesButNoNan) {
  UpdateRule rule{.learning_rate = 1, .clip_value = 0.5f};
  const UpdateScalars scalars = update_scalars(OptimizerKind::sgd, rule, 2, false);
  float none = 0;
  EXPECT_EQ(updated<OptimizerKind::sgd>(scalars, 1, 0.125f, none, none), 0.75f);
  EXPECT_EQ(updated<OptimizerKind::sgd>(scalars, 1, 3, none, none), 0.5f);
  EXPECT_EQ(updated<OptimizerKind::sgd>(scalars, 1, -kInfinity, none, none), 1.5f);
  EXPECT_TRUE(std::isnan(updated<OptimizerKind::sgd>(scalars, 1, kNan, none, none)));
  rule.clip_value = 0;
  EXPECT_EQ(updated<OptimizerKind::sgd>(update_scalars(OptimizerKind::sgd, rule, 1, false), 1, kInfinity, none, none),
            -kInfinity);
  rule.weight_decay = 0.25f;
  EXPECT_EQ(updated<OptimizerKind::sgd>(update_scalars(OptimizerKind::sgd, rule, 1, true), 1, 0, none, none), 0.75f);
}

}  // namespace
}  // namespace lockstep::model::formulas
