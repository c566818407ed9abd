// The CPU backend against the float64 reference. Tolerances are multiples of the fp32 rounding unit 2^-24.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/backend.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/reference/reference_backend.hpp"
#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::binary;
using test::binary_cross_entropy;
using test::kActivations;
using test::labels;
using test::mean_squared_error;
using test::samples;
using test::softmax_cross_entropy;
using test::view;

constexpr double kUnit = 0x1p-24;

/// Returns the greatest |a - b|.
double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // keeps a NaN
  }
  return worst;
}

/// Returns the tolerance of a sum of `terms` numbers in (-1, 1). The bound for a sum in order is terms^2 / 2 units;
/// with random signs the error is below 2 * terms units.
double sum_tolerance(std::int64_t terms) { return kUnit * (8 + 2 * static_cast<double>(terms)); }

class CpuBackendSweep : public ::testing::TestWithParam<std::tuple<std::int64_t, int>> {
 protected:
  std::unique_ptr<Backend> cpu_ = make_backend("cpu", {.threads = std::get<1>(GetParam())});
  std::unique_ptr<Backend> reference_ = std::make_unique<ReferenceBackend>();
  std::int64_t batch_ = std::get<0>(GetParam());
};

constexpr std::int64_t kWidths[] = {1, 2, 3, 7, 10, 15, 16, 17, 33, 100, 512};

/// Arrays of one linear layer for one backend.
template <class T>
struct LinearArrays {
  LinearArrays(std::int64_t batch, std::int64_t inputs, std::int64_t outputs)
      : rows(batch),
        in(inputs),
        out(outputs),
        x(samples<T>("x", batch * inputs)),
        w(samples<T>("w", inputs * outputs)),
        bias(samples<T>("bias", outputs)),
        y(samples<T>("stale", batch * outputs)),
        d_y(samples<T>("d_y", batch * outputs)),
        d_w(samples<T>("d_w", inputs * outputs)),
        d_bias(samples<T>("d_bias", outputs)),
        d_x(samples<T>("stale", batch * inputs)) {}

  void forward(Backend& backend, bool with_bias, Activation activation) {
    backend.linear_forward(view(x, rows, in), view(w, in, out), with_bias ? view(bias, 1, out) : Tensor{}, activation,
                           view(y, rows, out));
  }
  void backward(Backend& backend, bool with_bias, bool with_d_x, Activation activation, Accumulate accumulate) {
    backend.linear_backward({.x = view(x, rows, in),
                             .w = view(w, in, out),
                             .y = view(y, rows, out),
                             .d_y = view(d_y, rows, out),
                             .d_w = view(d_w, in, out),
                             .d_bias = with_bias ? view(d_bias, 1, out) : Tensor{},
                             .d_x = with_d_x ? view(d_x, rows, in) : Tensor{}},
                            activation, accumulate);
  }

  std::int64_t rows, in, out;
  std::vector<T> x, w, bias, y, d_y, d_w, d_bias, d_x;
};

TEST_P(CpuBackendSweep, LinearForward) {
  for (const std::int64_t inputs : kWidths) {
    for (const std::int64_t outputs : kWidths) {
      const Activation activation = kActivations[(inputs + outputs) % 4];
      const bool with_bias = (inputs + 2 * outputs) % 3 != 0;
      LinearArrays<float> fast(batch_, inputs, outputs);
      LinearArrays<double> exact(batch_, inputs, outputs);
      fast.forward(*cpu_, with_bias, activation);
      exact.forward(*reference_, with_bias, activation);
      ASSERT_LE(distance(fast.y, exact.y), sum_tolerance(inputs))
          << batch_ << " x " << inputs << " -> " << outputs << " " << name_of(activation);
    }
  }
}

TEST_P(CpuBackendSweep, LinearBackward) {
  for (const std::int64_t inputs : kWidths) {
    for (const std::int64_t outputs : kWidths) {
      const Activation activation = kActivations[(inputs + outputs) % 4];
      const bool with_bias = (inputs + 2 * outputs) % 3 != 0;
      const bool with_d_x = (inputs + outputs) % 5 != 0;
      const Accumulate accumulate = (inputs * outputs) % 2 == 0 ? Accumulate::no : Accumulate::yes;
      const std::string where = fmt::format("{} x {} -> {} {}", batch_, inputs, outputs, name_of(activation));
      LinearArrays<float> fast(batch_, inputs, outputs);
      LinearArrays<double> exact(batch_, inputs, outputs);
      // Both use the same output, so that elements are on the same side of the corner of relu.
      exact.forward(*reference_, true, activation);
      std::ranges::transform(exact.y, fast.y.begin(), [](double v) { return static_cast<float>(v); });
      std::ranges::copy(fast.y, exact.y.begin());
      const std::vector<float> x_before = fast.d_x;

      fast.backward(*cpu_, with_bias, with_d_x, activation, accumulate);
      exact.backward(*reference_, with_bias, with_d_x, activation, accumulate);
      ASSERT_LE(distance(fast.d_y, exact.d_y), 4 * kUnit) << where;
      ASSERT_LE(distance(fast.d_w, exact.d_w), sum_tolerance(batch_)) << where;
      ASSERT_LE(distance(fast.d_bias, exact.d_bias), sum_tolerance(batch_)) << where;
      if (with_d_x) {
        ASSERT_LE(distance(fast.d_x, exact.d_x), sum_tolerance(outputs)) << where;
      } else {
        ASSERT_EQ(fast.d_x, x_before) << where;
      }
    }
  }
}

TEST_P(CpuBackendSweep, FunctionsOfEachElement) {
  for (const std::int64_t columns : {1, 7, 333}) {
    for (const Function function : test::kFunctions) {
      const Elementwise f{.function = function, .parameter = 0.25f};
      auto fast_x = samples<float>("x", batch_ * columns, 9);
      auto exact_x = samples<double>("x", batch_ * columns, 9);
      auto fast_d = samples<float>("d", batch_ * columns);
      auto exact_d = samples<double>("d", batch_ * columns);
      if (function == Function::log1p) {
        for (float& value : fast_x) value = std::abs(value);
        for (double& value : exact_x) value = std::abs(value);
      }
      auto fast_y = fast_x, fast_d_x = fast_d;
      auto exact_y = exact_x, exact_d_x = exact_d;
      const auto run = [&](Backend& backend, auto& x, auto& y, auto& d_y, auto& d_x) {
        backend.elementwise_forward(f, view(x, batch_, columns), view(y, batch_, columns));
        const SlopeReads reads = slope_reads(function);
        const Tensor read = reads == SlopeReads::nothing ? Tensor{}
                            : reads == SlopeReads::input ? view(x, batch_, columns)
                                                         : view(y, batch_, columns);
        backend.elementwise_backward(f, read, view(d_y, batch_, columns), view(d_x, batch_, columns));
      };
      run(*cpu_, fast_x, fast_y, fast_d, fast_d_x);
      run(*reference_, exact_x, exact_y, exact_d, exact_d_x);
      for (std::size_t i = 0; i < fast_y.size(); ++i) {
        ASSERT_NEAR(fast_y[i], exact_y[i], 1e-6 * (0.1 + std::abs(exact_y[i]))) << static_cast<int>(function);
        ASSERT_NEAR(fast_d_x[i], exact_d_x[i], 2e-6) << static_cast<int>(function);
      }
      if (fast_x.empty()) continue;
      std::vector<float> nan{test::kNan}, out{0};
      cpu_->elementwise_forward(f, view(nan, 1, 1), view(out, 1, 1));
      EXPECT_TRUE(std::isnan(out[0])) << static_cast<int>(function);
    }
  }
}

TEST_P(CpuBackendSweep, CopyColumns) {
  auto x = samples<float>("x", batch_ * 5), y = samples<float>("y", batch_ * 9);
  const auto before = y;
  cpu_->copy_columns(view(x, batch_, 5), 1, view(y, batch_, 9), 6, 3);
  for (std::int64_t i = 0; i < batch_ * 9; ++i) {
    const std::int64_t row = i / 9, column = i % 9;
    const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
    EXPECT_EQ(y[at(i)], column < 6 ? before[at(i)] : x[at(row * 5 + column - 5)]) << i;
  }
  EXPECT_THROW(cpu_->copy_columns(view(x, batch_, 5), 3, view(y, batch_, 9), 0, 3), std::invalid_argument);
  EXPECT_THROW(cpu_->copy_columns(view(x, batch_, 5), 0, view(y, batch_, 9), 7, 3), std::invalid_argument);
  EXPECT_THROW(cpu_->copy_columns(view(x, batch_, 5), 0, view(y, batch_ + 1, 9), 0, 3), std::invalid_argument);
}

TEST_P(CpuBackendSweep, SoftmaxCrossEntropy) {
  for (const std::int64_t classes : {1, 2, 3, 10, 16, 17, 100, 512, 2048, 2049, 5000}) {
    if (batch_ * classes > 200000) continue;
    auto fast = samples<float>("logits", batch_ * classes, 10);
    auto exact = samples<double>("logits", batch_ * classes, 10);
    auto answer = labels(batch_, classes);
    const auto before = fast;
    const double scale = 0.25;
    const LossSums only =
        softmax_cross_entropy(*cpu_, view(fast, batch_, classes), view(answer, batch_, 1), scale, false);
    EXPECT_EQ(fast, before) << "without gradient the logits stay";
    const LossSums got =
        softmax_cross_entropy(*cpu_, view(fast, batch_, classes), view(answer, batch_, 1), scale, true);
    const LossSums expected =
        softmax_cross_entropy(*reference_, view(exact, batch_, classes), view(answer, batch_, 1), scale, true);
    EXPECT_NEAR(got.loss, expected.loss, 1e-6 * std::abs(expected.loss) + 1e-6 * static_cast<double>(batch_))
        << classes;
    EXPECT_NEAR(only.loss, expected.loss, 1e-6 * std::abs(expected.loss) + 1e-6 * static_cast<double>(batch_))
        << classes;
    EXPECT_EQ(got.metric, expected.metric) << classes;
    EXPECT_EQ(only.metric, expected.metric) << classes;
    EXPECT_LE(distance(fast, exact), 16 * kUnit * scale) << classes;
  }
}

TEST_P(CpuBackendSweep, SoftCrossEntropy) {
  auto weight = test::weights(batch_);
  for (const std::int64_t classes : {2, 3, 10, 17, 512, 2049, 5000}) {
    if (batch_ * classes > 200000) continue;
    for (const bool weighted : {false, true}) {
      auto fast = samples<float>("logits", batch_ * classes, 10);
      auto exact = samples<double>("logits", batch_ * classes, 10);
      auto targets = test::probabilities(batch_, classes);
      const auto before = fast;
      LossOptions options{.scale = 0.25, .smoothing = weighted ? 0.1f : 0.0f};
      if (weighted) options.weights = view(weight, batch_, 1);
      const auto on = [&](Backend& backend, const Tensor& z) {
        return test::soft_cross_entropy(backend, z, view(targets, batch_, classes), options);
      };
      const LossSums only = on(*cpu_, view(fast, batch_, classes));
      EXPECT_EQ(fast, before) << "without gradient the logits stay";
      auto judged = exact;
      EXPECT_EQ(only.found, on(*reference_, view(judged, batch_, classes)).found) << classes;
      options.want_gradient = true;
      const LossSums got = on(*cpu_, view(fast, batch_, classes));
      const LossSums expected = on(*reference_, view(exact, batch_, classes));
      const double limit = 1e-6 * std::abs(expected.loss) + 2e-6 * static_cast<double>(batch_);
      EXPECT_NEAR(got.loss, expected.loss, limit) << classes;
      EXPECT_NEAR(only.loss, expected.loss, limit) << classes;
      EXPECT_EQ(got.metric, expected.metric) << classes;
      EXPECT_EQ(only.metric, expected.metric) << classes;
      EXPECT_LE(distance(fast, exact), 16 * kUnit) << classes;
    }
  }
}

TEST_P(CpuBackendSweep, SoftDice) {
  for (const std::int64_t positions : {1, 5, 30}) {
    for (const std::int64_t classes : {1, 2, 3, 17, 2049}) {
      const std::int64_t rows = batch_ * positions;
      if (rows * classes > 200000) continue;
      auto fast = samples<float>("logits", rows * classes, 5);
      auto exact = samples<double>("logits", rows * classes, 5);
      auto answer = labels(rows, classes);
      for (std::size_t i = 1; i < answer.size(); i += 4) answer[i] = kNoClass;
      const auto before = fast;
      LossOptions options{.scale = 0.25};
      const auto on = [&](Backend& backend, const Tensor& z) {
        return test::soft_dice(backend, z, view(answer, rows, 1), positions, options);
      };
      const LossSums only = on(*cpu_, view(fast, rows, classes));
      EXPECT_EQ(fast, before) << "without gradient the logits stay";
      options.want_gradient = true;
      const LossSums got = on(*cpu_, view(fast, rows, classes));
      const LossSums expected = on(*reference_, view(exact, rows, classes));
      EXPECT_NEAR(got.loss, expected.loss, 1e-6 * (expected.loss + 1)) << classes;
      EXPECT_NEAR(only.loss, expected.loss, 1e-6 * (expected.loss + 1)) << classes;
      EXPECT_EQ(got.metric, expected.metric) << classes;
      EXPECT_EQ(only.metric, expected.metric) << classes;
      EXPECT_LE(distance(fast, exact), 32 * kUnit) << classes;
    }
  }
}

TEST_P(CpuBackendSweep, MeanSquaredError) {
  for (const std::int64_t outputs : {1, 2, 10, 17, 512}) {
    auto fast = samples<float>("predictions", batch_ * outputs, 3);
    auto exact = samples<double>("predictions", batch_ * outputs, 3);
    auto targets = samples<float>("targets", batch_ * outputs, 3);
    const auto before = fast;
    const LossSums only =
        mean_squared_error(*cpu_, view(fast, batch_, outputs), view(targets, batch_, outputs), 0.5, false);
    EXPECT_EQ(fast, before);
    const LossSums got =
        mean_squared_error(*cpu_, view(fast, batch_, outputs), view(targets, batch_, outputs), 0.5, true);
    const LossSums expected =
        mean_squared_error(*reference_, view(exact, batch_, outputs), view(targets, batch_, outputs), 0.5, true);
    EXPECT_NEAR(got.loss, expected.loss, 1e-12 * (1 + expected.loss));
    EXPECT_NEAR(got.metric, expected.metric, 1e-12 * (1 + expected.metric));
    EXPECT_EQ(only.loss, got.loss);
    EXPECT_EQ(only.metric, got.metric);
    EXPECT_LE(distance(fast, exact), 16 * kUnit);
  }
}

TEST_P(CpuBackendSweep, OtherErrors) {
  for (const ErrorLoss of_error : {ErrorLoss::absolute, ErrorLoss::huber}) {
    for (const std::int64_t outputs : {1, 2, 10, 17, 512}) {
      auto fast = samples<float>("predictions", batch_ * outputs, 3);
      auto targets = samples<float>("targets", batch_ * outputs, 3);
      if (!fast.empty()) fast[0] = targets[0];
      auto exact = std::vector<double>(fast.begin(), fast.end());
      const auto before = fast;
      LossOptions options{.scale = 0.5, .of_error = of_error};
      const LossSums only =
          test::mean_error(*cpu_, view(fast, batch_, outputs), view(targets, batch_, outputs), options);
      EXPECT_EQ(fast, before);
      options.want_gradient = true;
      const LossSums got =
          test::mean_error(*cpu_, view(fast, batch_, outputs), view(targets, batch_, outputs), options);
      const LossSums expected =
          test::mean_error(*reference_, view(exact, batch_, outputs), view(targets, batch_, outputs), options);
      EXPECT_NEAR(got.loss, expected.loss, 1e-12 * (1 + expected.loss));
      EXPECT_NEAR(got.metric, expected.metric, 1e-12 * (1 + expected.metric));
      EXPECT_EQ(only.loss, got.loss);
      EXPECT_LE(distance(fast, exact), 16 * kUnit);
      EXPECT_EQ(fast.empty() ? 0 : fast[0], 0) << "nothing is wrong";
    }
  }
}

TEST_P(CpuBackendSweep, WeightsOfRows) {
  auto weight = test::weights(batch_);
  auto answer = labels(batch_, 17);
  for (std::size_t i = 3; i < answer.size(); i += 10) answer[i] = kNoClass;  // rows with a weight of 0
  auto targets = samples<float>("targets", batch_ * 17, 3), there = binary(batch_ * 17);
  const auto check = [&](auto loss, std::int64_t columns, const char* what) {
    for (const bool want_gradient : {false, true}) {
      LossOptions options{.scale = 0.5, .want_gradient = want_gradient, .weights = view(weight, batch_, 1)};
      auto fast = samples<float>("z", batch_ * columns, 3);
      auto exact = std::vector<double>(fast.begin(), fast.end());
      const LossSums got = loss(*cpu_, view(fast, batch_, columns), options);
      const LossSums expected = loss(*reference_, view(exact, batch_, columns), options);
      EXPECT_NEAR(got.loss, expected.loss, 1e-6 * (1 + expected.loss)) << what;
      EXPECT_NEAR(got.metric, expected.metric, 1e-9 * (1 + expected.metric)) << what;
      EXPECT_NEAR(got.found, expected.found, 1e-9 * (1 + expected.found)) << what;
      EXPECT_LE(distance(fast, exact), 16 * kUnit) << what;
    }
  };
  for (const std::int64_t padding : {0, 3}) {
    check(
        [&](Backend& backend, const Tensor& z, LossOptions options) {
          options.classes = 17;
          return softmax_cross_entropy(backend, z, view(answer, batch_, 1), options);
        },
        17 + padding, "softmax cross-entropy");
  }
  check([&](Backend& backend, const Tensor& z,
            const LossOptions& options) { return binary_cross_entropy(backend, z, view(there, batch_, 17), options); },
        17, "binary cross-entropy");
  for (const ErrorLoss of_error : {ErrorLoss::squared, ErrorLoss::absolute, ErrorLoss::huber}) {
    check(
        [&](Backend& backend, const Tensor& z, LossOptions options) {
          options.of_error = of_error;
          return test::mean_error(backend, z, view(targets, batch_, 17), options);
        },
        17, "error");
  }
}

TEST_P(CpuBackendSweep, BinaryCrossEntropy) {
  for (const std::int64_t labels : {1, 2, 3, 17, 512, 700}) {
    for (const float smoothing : {0.0f, 0.2f}) {
      auto fast = samples<float>("logits", batch_ * labels, 10);
      if (!fast.empty()) fast[0] = 1e4f;
      if (fast.size() > 1) fast[1] = -1e4f;
      auto exact = std::vector<double>(fast.begin(), fast.end());
      auto targets = binary(batch_ * labels);
      const auto before = fast;
      LossOptions options{.scale = 0.5, .smoothing = smoothing};
      const LossSums only =
          binary_cross_entropy(*cpu_, view(fast, batch_, labels), view(targets, batch_, labels), options);
      EXPECT_EQ(fast, before) << "without gradient the logits stay";
      options.want_gradient = true;
      const LossSums got =
          binary_cross_entropy(*cpu_, view(fast, batch_, labels), view(targets, batch_, labels), options);
      const LossSums expected =
          binary_cross_entropy(*reference_, view(exact, batch_, labels), view(targets, batch_, labels), options);
      EXPECT_NEAR(got.loss, expected.loss, 1e-6 * (1 + expected.loss)) << labels;
      EXPECT_NEAR(got.metric, expected.metric, 1e-12 * (1 + expected.metric)) << labels;
      EXPECT_NEAR(got.found, expected.found, 1e-12 * (1 + expected.found)) << labels;
      EXPECT_EQ(only.loss, got.loss);
      EXPECT_EQ(only.found, got.found);
      EXPECT_LE(distance(fast, exact), 16 * kUnit) << labels;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, CpuBackendSweep,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3, 7, 16, 100, 129), ::testing::Values(1)));
INSTANTIATE_TEST_SUITE_P(Threads, CpuBackendSweep, ::testing::Combine(::testing::Values(257), ::testing::Values(2, 3)));

class CpuBackendTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Backend> cpu_ = make_backend("cpu", {.threads = GetParam()});
};

TEST_P(CpuBackendTest, ConvertsEveryInputType) {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 784, 100000}) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
    auto floats = samples<float>("in", count, 5);
    auto doubles = samples<double>("in", count, 5);
    std::vector<float> out(bytes.size());
    const InputTransform transform{1.0f / 255, -0.5f};
    cpu_->convert_input(view(bytes, 1, count), transform, view(out, 1, count));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], bytes[i] / 255.0 - 0.5, 1e-7) << i;
    cpu_->convert_input(view(floats, 1, count), transform, view(out, 1, count));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], doubles[i] / 255.0 - 0.5, 1e-7) << i;
    cpu_->convert_input(view(doubles, 1, count), transform, view(out, 1, count));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], doubles[i] / 255.0 - 0.5, 1e-7) << i;
  }
}

TEST_P(CpuBackendTest, SumOfSquaresIsDouble) {
  for (const std::int64_t count : {0, 1, 15, 17, 1000, 300000, 5000000}) {
    auto values = samples<float>("norm", count, 3);
    double expected = 0;
    for (const float v : values) expected += static_cast<double>(v) * static_cast<double>(v);
    EXPECT_NEAR(sum_of_squares_now(*cpu_, view(values, 1, count)), expected, 1e-12 * expected) << count;
  }
  std::vector<float> large(100, 3e38f);
  EXPECT_NEAR(sum_of_squares_now(*cpu_, view(large, 1, 100)), 100 * 9e76, 1e71) << "no overflow on the way";
}

TEST_P(CpuBackendTest, AddsTheL2GradientToDecayedSlicesOnly) {
  const std::int64_t count = 200000;
  auto parameters = samples<float>("w", count);
  auto gradients = samples<float>("g", count);
  const auto before = gradients;
  const std::vector<UpdateSlice> slices{{0, 64, false}, {64, 199000, true}};
  cpu_->add_l2_gradient(view(parameters, 1, count), view(gradients, 1, count), 0.5f, slices);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const bool decayed = i >= 64 && i < 199064;
    ASSERT_NEAR(gradients[i], before[i] + (decayed ? 0.5 * parameters[i] : 0), 1e-7) << i;
  }
}

TEST_P(CpuBackendTest, NotFiniteComesThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float poison : {nan, infinity, -infinity}) {
    for (const std::int64_t count : {1, 40, 1000, 200000}) {
      for (const std::int64_t place : {std::int64_t{0}, count / 2, count - 1}) {
        auto values = samples<float>("norm", count);
        values[static_cast<std::size_t>(place)] = poison;
        EXPECT_FALSE(std::isfinite(sum_of_squares_now(*cpu_, view(values, 1, count)))) << count << " " << place;
      }
    }
  }
  for (const std::int64_t classes : {2, 10, 64, 3000}) {
    for (const float poison : {nan, infinity}) {
      for (const std::int64_t place : {std::int64_t{0}, classes / 2, classes - 1}) {
        for (const bool want_gradient : {false, true}) {
          auto logits = samples<float>("logits", 3 * classes);
          logits[static_cast<std::size_t>(classes + place)] = poison;
          auto answer = labels(3, classes);
          const LossSums sums =
              softmax_cross_entropy(*cpu_, view(logits, 3, classes), view(answer, 3, 1), 1, want_gradient);
          EXPECT_FALSE(std::isfinite(sums.loss)) << classes << " " << place << " " << poison;
          EXPECT_LE(sums.metric, 2) << "a row with a NaN is not a right answer";
        }
      }
    }
  }
  for (const float poison : {nan, infinity}) {
    auto p = samples<float>("p", 50);
    auto t = samples<float>("t", 50);
    p[20] = poison;
    EXPECT_FALSE(std::isfinite(mean_squared_error(*cpu_, view(p, 10, 5), view(t, 10, 5), 1, true).loss));
    EXPECT_FALSE(std::isfinite(p[20]));
  }
  for (const Activation activation : kActivations) {
    for (const std::int64_t outputs : {1, 10, 16, 40}) {
      LinearArrays<float> layer(5, 20, outputs);
      layer.x[47] = nan;  // sample 2
      layer.forward(*cpu_, true, activation);
      for (std::int64_t b = 0; b < 5; ++b) {
        for (std::int64_t o = 0; o < outputs; ++o) {
          EXPECT_EQ(std::isnan(layer.y[static_cast<std::size_t>(b * outputs + o)]), b == 2)
              << name_of(activation) << " " << outputs << " sample " << b;
        }
      }
    }
  }
}

TEST_P(CpuBackendTest, RepeatsBitForBit) {
  std::vector<std::vector<float>> first;
  double first_norm = 0, first_loss = 0;
  for (int run = 0; run < 3; ++run) {
    LinearArrays<float> layer(300, 200, 100);
    layer.forward(*cpu_, true, Activation::tanh);
    auto answer = labels(300, 100);
    const double loss = softmax_cross_entropy(*cpu_, view(layer.y, 300, 100), view(answer, 300, 1), 1, true).loss;
    layer.backward(*cpu_, true, true, Activation::tanh, Accumulate::no);
    const double norm = sum_of_squares_now(*cpu_, view(layer.d_w, 200, 100));
    if (run == 0) {
      first = {layer.y, layer.d_w, layer.d_bias, layer.d_x};
      first_norm = norm;
      first_loss = loss;
    }
    EXPECT_EQ(first, (std::vector{layer.y, layer.d_w, layer.d_bias, layer.d_x}));
    EXPECT_EQ(first_norm, norm);
    EXPECT_EQ(first_loss, loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuBackendTest, ::testing::Values(1, 2, 3));

TEST(CpuBackend, SumsDoNotDependOnTheNumberOfThreads) {
  const auto one = make_backend("cpu", {.threads = 1}), three = make_backend("cpu", {.threads = 3});
  auto values = samples<float>("norm", 1000003);
  EXPECT_EQ(sum_of_squares_now(*one, view(values, 1, 1000003)), sum_of_squares_now(*three, view(values, 1, 1000003)));
  auto logits = samples<float>("logits", 20000 * 10);
  auto answer = labels(20000, 10);
  EXPECT_EQ(softmax_cross_entropy(*one, view(logits, 20000, 10), view(answer, 20000, 1), 1, false).loss,
            softmax_cross_entropy(*three, view(logits, 20000, 10), view(answer, 20000, 1), 1, false).loss);
}

TEST(CpuBackend, DiceOfASampleDependsOnNoOtherNorOnThreads) {
  const auto one = make_backend("cpu", {.threads = 1}), three = make_backend("cpu", {.threads = 3});
  const std::int64_t positions = 20000, classes = 3;
  const auto of = [&](Backend& backend, std::int64_t samples_here) {
    auto z = samples<float>("z", samples_here * positions * classes, 3);
    auto answer = labels(samples_here * positions, classes);
    const LossSums sums =
        test::soft_dice(backend, view(z, samples_here * positions, classes), view(answer, samples_here * positions, 1),
                        positions, {.scale = 0.5, .want_gradient = true});
    z.resize(static_cast<std::size_t>(positions * classes));
    return std::pair(sums.loss, z);
  };
  EXPECT_EQ(of(*one, 4), of(*three, 4));
  EXPECT_EQ(of(*one, 4).second, of(*three, 1).second);
}

TEST(CpuBackend, SaysWhatItRunsOn) {
  const std::string text = make_backend("cpu", {.threads = 2})->description();
  EXPECT_TRUE(text.starts_with("cpu: own products x86-64-v") || text.starts_with("cpu: OpenBLAS ")) << text;
  EXPECT_TRUE(text.ends_with(", 2 threads")) << text;
}

TEST(MakeBackend, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(make_backend("gpu"), std::invalid_argument);
  EXPECT_THROW(make_backend("cpu", {.threads = 0}), std::invalid_argument);
  EXPECT_EQ(make_backend("cpu")->name(), "cpu");
  EXPECT_THROW(make_backend("reference"), std::invalid_argument);
}

TEST(CheckedFront, RefusesShapesAndTypesThatDoNotFit) {
  const auto cpu = make_backend("cpu");
  std::vector<float> a(64), b(64), c(64);
  std::vector<double> wide(64);
  std::vector<std::int32_t> whole(64);
  const auto forward = [&](const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
    cpu->linear_forward(x, w, bias, Activation::none, y);
  };
  EXPECT_NO_THROW(forward(view(a, 4, 3), view(b, 3, 5), {}, view(c, 4, 5)));
  EXPECT_THROW(forward(view(a, 4, 2), view(b, 3, 5), {}, view(c, 4, 5)), std::invalid_argument);
  EXPECT_THROW(forward(view(a, 4, 3), view(b, 3, 5), {}, view(c, 5, 4)), std::invalid_argument);
  EXPECT_THROW(forward(view(wide, 4, 3), view(b, 3, 5), {}, view(c, 4, 5)), std::invalid_argument);
  EXPECT_THROW(forward(view(a, 4, 3), view(b, 3, 5), view(a, 1, 4), view(c, 4, 5)), std::invalid_argument);
  EXPECT_THROW(forward({}, view(b, 3, 5), {}, view(c, 4, 5)), std::invalid_argument);
  EXPECT_THROW(
      cpu->linear_backward({.x = view(a, 4, 3), .w = view(b, 3, 5), .d_y = view(c, 4, 5), .d_w = view(b, 3, 5)},
                           Activation::relu, Accumulate::no),
      std::invalid_argument);
  EXPECT_THROW(
      cpu->linear_backward(
          {.x = view(a, 4, 3), .w = view(b, 3, 5), .d_y = view(c, 4, 5), .d_w = view(b, 3, 5), .d_x = view(a, 4, 3)},
          Activation::none, Accumulate::no),
      std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(*cpu, view(a, 4, 3), view(whole, 3, 1), 1, true), std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(*cpu, view(a, 4, 3), view(b, 4, 1), 1, true), std::invalid_argument);
  EXPECT_THROW(mean_squared_error(*cpu, view(a, 4, 3), view(wide, 4, 3), 1, true), std::invalid_argument);
  EXPECT_THROW(cpu->convert_input(view(whole, 4, 3), {}, view(c, 4, 3)), std::invalid_argument);
  EXPECT_THROW(sum_of_squares_now(*cpu, view(wide, 4, 3)), std::invalid_argument);
  EXPECT_THROW(cpu->upload(a, view(b, 1, 63)), std::invalid_argument);
  const std::vector<UpdateSlice> beyond{{60, 5, false}};
  const UpdateArenas arenas{view(a, 1, 64), view(b, 1, 64), {}, {}, {}, {}, {}};
  EXPECT_NO_THROW(test::update(*cpu, arenas, OptimizerKind::sgd, {}, {}));
  EXPECT_THROW(test::update(*cpu, arenas, OptimizerKind::sgd, {}, beyond), std::invalid_argument);
  EXPECT_THROW(test::update(*cpu, arenas, OptimizerKind::adam, {}, {}), std::invalid_argument);
  EXPECT_THROW(test::update(*cpu, arenas, OptimizerKind::sgd, {.average_decay = 0.5f}, {}), std::invalid_argument);
  EXPECT_THROW(view(a, 1, 64).elements<double>(), std::invalid_argument);
}

TEST(CpuBackend, AddsAndSquaresImagesInBf16WhereItMultipliesInBf16) {
  std::vector<std::uint16_t> x{0x3F80, 0x3B80, 0xC000, 0x7F80}, y{0x3F80, 0x3F80, 0x4000, 0x4000};  // 1, 2^-8, -2, inf
  const auto image = [](std::vector<std::uint16_t>& elements) {
    return Tensor{elements.data(), ElementType::bfloat16, 1, 4};
  };
  const auto bf16 = make_backend("cpu", {.bf16_unit = Bf16Unit::emulated_avx512}), fp32 = make_backend("cpu");
  EXPECT_EQ(bf16->narrow_type(), ElementType::bfloat16);
  EXPECT_EQ(fp32->narrow_type(), ElementType::float32);
  EXPECT_THROW(fp32->add(image(x), image(y)), std::invalid_argument);
  bf16->add(image(x), image(y));
  EXPECT_EQ(y, (std::vector<std::uint16_t>{0x4000, 0x3F80, 0x0000, 0x7F80})) << "2, 1: half of a unit, to even, 0, inf";
  x[3] = 0;
  EXPECT_EQ(sum_of_squares_now(*bf16, image(x)), 1 + 0x1p-16 + 4);
  EXPECT_THROW(sum_of_squares_now(*fp32, image(x)), std::invalid_argument);
  std::vector<float> floats(4);
  EXPECT_NO_THROW(bf16->cast(image(x), image(y)));
  EXPECT_EQ(y, x);
  EXPECT_THROW(bf16->cast(image(x), view(floats, 1, 4)), std::invalid_argument) << "one type alone";
}

TEST(CpuBackend, ComputesFunctionsOfImagesInBf16) {
  constexpr std::size_t kCount = 5003;
  const auto image = [](std::vector<std::uint16_t>& elements) {
    return Tensor{elements.data(), ElementType::bfloat16, 1, static_cast<std::int64_t>(elements.size())};
  };
  const auto rounded = [](std::string_view name) {
    std::vector<std::uint16_t> elements(kCount);
    cpu::round_to_bf16(samples<float>(name, kCount), elements);
    return elements;
  };
  const auto exact = [](const std::vector<std::uint16_t>& elements) {
    std::vector<double> numbers(elements.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(cpu::to_float(elements[i]));
    return numbers;
  };
  ReferenceBackend reference;
  for (const int threads : {1, 3}) {
    const auto backend = make_backend("cpu", {.threads = threads, .bf16_unit = Bf16Unit::emulated_amx});
    for (const Function function : {Function::relu, Function::silu, Function::scale}) {
      const Elementwise f{.function = function, .parameter = 0.75f};
      auto x = rounded("x"), d_y = rounded("d_y"), y = x, d_x = x;
      auto exact_x = exact(x), exact_d_y = exact(d_y), exact_y = exact_x, exact_d_x = exact_x;
      const auto row = [](std::vector<double>& numbers) { return view(numbers, 1, kCount); };
      backend->elementwise_forward(f, image(x), image(y));
      reference.elementwise_forward(f, row(exact_x), row(exact_y));
      const SlopeReads reads = slope_reads(function);
      const auto read = [&](const Tensor& in, const Tensor& out) {
        return reads == SlopeReads::nothing ? Tensor{} : reads == SlopeReads::input ? in : out;
      };
      backend->elementwise_backward(f, read(image(x), image(y)), image(d_y), image(d_x));
      reference.elementwise_backward(f, read(row(exact_x), row(exact_y)), row(exact_d_y), row(exact_d_x));
      const auto got_y = exact(y), got_d_x = exact(d_x);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_NEAR(got_y[i], exact_y[i], 0x1p-8) << i;
        ASSERT_NEAR(got_d_x[i], exact_d_x[i], 0x1p-8) << i;
      }
      EXPECT_THROW(make_backend("cpu")->elementwise_forward(f, image(x), image(y)), std::invalid_argument);
    }
  }
}

}  // namespace
}  // namespace lockstep::model
