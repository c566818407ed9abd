/// \file
/// Checks gradients by finite differences in float64: central differences with step h have an error of O(h^2) plus
/// rounding / h, about 1e-10 for numbers around 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::model::test {

/// Returns df / dx by central difference.
inline double central_difference(double& x, const std::function<double()>& f, double step = 1e-5) {
  const double before = x;
  x = before + step;
  const double above = f();
  x = before - step;
  const double below = f();
  x = before;
  return (above - below) / (2 * step);
}

/// Requires each element within 1e-6 of its own size or of the mean size of the gradient's elements, whichever is
/// larger.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& f, std::string_view what) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  const double typical = std::sqrt(squares / static_cast<double>(gradient.size() + (gradient.empty() ? 1 : 0)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(central_difference(x[i], f), gradient[i], 1e-6 * std::max(std::abs(gradient[i]), typical) + 1e-9)
        << what << " " << i;
  }
}

/// Sum of weight * y: a scalar whose gradient by y is `weight`.
inline double weighted(const std::vector<double>& weight, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
  return sum;
}

}  // namespace lockstep::model::test
