// Compares the vectorised exp, tanh and sigmoid with libm over their whole range.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "model/cpu/loops/element_loops.hpp"

namespace lockstep::model::cpu {
namespace {

TEST(ActivationLoops, ExpIsWithinTwoUnitsOverTheRange) {
  std::vector<float> x;
  for (double v = -87; v <= 88.3; v += 0.00071) x.push_back(static_cast<float>(v));
  for (double v = 1e-8; v < 1; v *= 1.01) {
    x.push_back(static_cast<float>(v));
    x.push_back(static_cast<float>(-v));
  }
  x.push_back(0);
  std::vector<float> y(x.size());
  exp_each(x, y);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - expected) / expected);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_GT(worst, 0) << "fp32 cannot be exact everywhere: the comparison is broken";
}

TEST(ActivationLoops, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{
      -infinity, -1e30f, -100, -87.9f, 88.4f, 1e30f, infinity, std::numeric_limits<float>::quiet_NaN(), 0};
  std::vector<float> y(x.size());
  exp_each(x, y);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], 0) << x[i];
  for (int i = 4; i < 7; ++i) EXPECT_NEAR(y[i], 2.4e38f, 0.1e38f) << x[i];
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_EQ(y[8], 1);
}

/// Returns the greatest relative error of one activation over [-30, 30], with and without a bias.
double worst_error(Activation activation, double (*exact)(double)) {
  double worst = 0;
  for (const bool with_bias : {false, true}) {
    std::vector<float> x;
    for (double v = -30; v <= 30; v += 0.00053) x.push_back(static_cast<float>(v));
    for (double v = 1e-6; v < 1; v *= 1.003) x.push_back(static_cast<float>(v));
    std::vector<float> y = x;
    const std::vector<float> bias(1, 0.0f);
    add_bias_and_activate(y, 1, with_bias ? std::span<const float>(bias) : std::span<const float>(), activation);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = exact(static_cast<double>(x[i]));
      if (expected != 0) worst = std::max(worst, std::abs(y[i] - expected) / std::abs(expected));
    }
  }
  return worst;
}

TEST(ActivationLoops, TanhAndSigmoid) {
  EXPECT_LT(worst_error(Activation::tanh, [](double x) { return std::tanh(x); }), 3e-7);
  EXPECT_LT(worst_error(Activation::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }), 4e-7);
}

TEST(ActivationLoops, TanhAndSigmoidAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y{-infinity, -100, 0, 100, infinity, nan};
  add_bias_and_activate(y, 6, {}, Activation::tanh);
  EXPECT_EQ((std::vector<float>(y.begin(), y.end() - 1)), (std::vector<float>{-1, -1, 0, 1, 1}));
  EXPECT_TRUE(std::isnan(y[5]));
  y = {-infinity, -100, 0, 100, infinity, nan};
  add_bias_and_activate(y, 6, {}, Activation::sigmoid);
  EXPECT_NEAR(y[0], 0, 1e-37);
  EXPECT_NEAR(y[1], 0, 1e-37);
  EXPECT_EQ((std::vector<float>(y.begin() + 2, y.end() - 1)), (std::vector<float>{0.5f, 1, 1}));
  EXPECT_TRUE(std::isnan(y[5]));
}

}  // namespace
}  // namespace lockstep::model::cpu
