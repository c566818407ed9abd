// Compares formulas of single elements of sequences and norms with float64, for ordinary and special values.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "finite_differences.hpp"
#include "model/formulas/gelu.hpp"
#include "model/formulas/lstm.hpp"
#include "model/formulas/normalization.hpp"
#include "sample_data.hpp"

namespace lockstep::model::formulas {
namespace {

using test::kNan;

/// The formula of Hendrycks & Gimpel.
double gelu_by_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

TEST(GeluFormula, MatchesTheFormWithTanh) {
  for (double x = -12; x <= 12; x += 0.0625) {
    EXPECT_NEAR(gelu(x), gelu_by_tanh(x), 1e-14 * (1 + std::abs(x))) << x;
    EXPECT_NEAR(static_cast<double>(gelu(static_cast<float>(x))), gelu_by_tanh(x), 5e-7 * (1 + std::abs(x))) << x;
    double at = x;
    const double slope = test::central_difference(at, [&] { return gelu_by_tanh(at); });
    EXPECT_NEAR(gelu_derivative(x), slope, 1e-8) << x;
    EXPECT_NEAR(static_cast<double>(gelu_derivative(static_cast<float>(x))), slope, 2e-6) << x;
  }
}

TEST(GeluFormula, EndsInZeroOrItselfAndKeepsNan) {
  EXPECT_EQ(gelu(0.0f), 0.0f);
  EXPECT_EQ(gelu(1e4f), 1e4f);
  EXPECT_EQ(gelu(-1e4f), 0.0f);
  EXPECT_EQ(gelu_derivative(0.0f), 0.5f);
  EXPECT_EQ(gelu_derivative(1e4f), 1.0f);
  EXPECT_EQ(gelu_derivative(-1e4f), 0.0f);
  EXPECT_TRUE(std::isnan(gelu(kNan)));
  EXPECT_TRUE(std::isnan(gelu_derivative(kNan)));
  EXPECT_EQ(gelu(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

/// Returns cell and hidden state after a step, from its five inputs.
LstmState<double> step(const std::vector<double>& x) {
  return lstm_step(lstm_activate(LstmGates<double>{x[0], x[1], x[2], x[3]}), x[4]);
}

TEST(LstmFormula, BackwardIsTheGradientOfForward) {
  for (std::vector<double> x : {std::vector{0.3, -0.7, 1.1, 0.2, -0.4}, std::vector{-2.0, 3.0, -0.5, 1.5, 2.5}}) {
    const double d_hidden = 0.7, d_cell = -1.3;
    const LstmGates<double> gates = lstm_activate(LstmGates<double>{x[0], x[1], x[2], x[3]});
    const LstmState<double> after = lstm_step(gates, x[4]);
    const LstmGradients<double> got = lstm_step_back(gates, x[4], after.cell, d_hidden, d_cell);
    const std::vector<double> gradient{got.sums.input, got.sums.forget, got.sums.cell, got.sums.output,
                                       got.cell_before};
    test::expect_gradient(
        x, gradient, [&] { return d_hidden * step(x).hidden + d_cell * step(x).cell; }, "number of a step");
  }
}

TEST(LstmFormula, IsThatOfItsPaperAndKeepsNan) {
  const LstmGates<float> gates = lstm_activate(LstmGates<float>{0, 0, 0, 0});
  EXPECT_EQ(gates.input, 0.5f);
  EXPECT_EQ(gates.forget, 0.5f);
  EXPECT_EQ(gates.cell, 0.0f);
  EXPECT_EQ(gates.output, 0.5f);
  const LstmState<float> after = lstm_step(LstmGates<float>{0.25f, 0.5f, -1, 0.75f}, 3.0f);
  EXPECT_EQ(after.cell, 1.25f);
  EXPECT_FLOAT_EQ(after.hidden, 0.75f * std::tanh(1.25f));
  EXPECT_TRUE(std::isnan(lstm_step(gates, kNan).hidden));
  const LstmGates<float> far = lstm_activate(LstmGates<float>{200, -200, 200, -200});
  EXPECT_EQ(far.input, 1.0f);
  EXPECT_EQ(far.forget, 0.0f);
  EXPECT_EQ(far.cell, 1.0f);
  EXPECT_EQ(far.output, 0.0f);
}

TEST(Moments, AreThoseOfTheValuesAndNeverNegative) {
  const std::vector<double> values{1, 4, -2, 7, 7};
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
  }
  const Moments moments = moments_of(sum, squares, 5);
  EXPECT_DOUBLE_EQ(moments.mean, 3.4);
  EXPECT_NEAR(moments.variance, 12.24, 1e-12);
  EXPECT_NEAR(unbiased_variance(moments.variance, 5), 15.3, 1e-12);
  EXPECT_EQ(unbiased_variance(0.0, 1), 0);
  EXPECT_EQ(moments_of(3 * 0.1, 3 * 0.1 * 0.1 - 1e-17, 3).variance, 0);
  EXPECT_EQ(moments_of(0, 0, 0).mean, 0);
  EXPECT_EQ(moments_of(0, 0, 0).variance, 0);
  EXPECT_TRUE(std::isnan(moments_of(kNan, kNan, 3).variance));
  EXPECT_DOUBLE_EQ(inverse_deviation(0.24, 0.01), 2);
  EXPECT_TRUE(std::isnan(inverse_deviation(kNan, 0.01)));
}

}  // namespace
}  // namespace lockstep::model::formulas
