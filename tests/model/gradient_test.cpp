// Compares gradients of the reference backend with finite differences in float64. Central differences with step h have
// an error of O(h^2) plus rounding / h, about 1e-10 here.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "model/reference/reference_backend.hpp"
#include "network_harness.hpp"
#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::binary;
using test::binary_cross_entropy;
using test::kActivations;
using test::kFunctions;
using test::labels;
using test::mean_error;
using test::mean_squared_error;
using test::samples;
using test::softmax_cross_entropy;
using test::view;

constexpr double kStep = 1e-5;
constexpr double kTolerance = 2e-8;

/// Returns df / dx by central difference.
double slope(double& x, const std::function<double()>& f) {
  const double before = x;
  x = before + kStep;
  const double above = f();
  x = before - kStep;
  const double below = f();
  x = before;
  return (above - below) / (2 * kStep);
}

void expect_slopes(std::vector<double>& x, const std::vector<double>& gradient, const std::function<double()>& f,
                   std::string_view what) {
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(slope(x[i], f), gradient[i], kTolerance) << what << " " << i;
}

TEST(Gradient, LinearLayerWithEachActivation) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 4, in = 5, out = 3;
  for (const Activation activation : kActivations) {
    auto x = samples<double>("x", batch * in), w = samples<double>("w", in * out), bias = samples<double>("b", out);
    const auto weight = samples<double>("weight of the outputs", batch * out);
    std::vector<double> y(static_cast<std::size_t>(batch * out));
    // The scalar is the sum of weight * y, so d_y is weight.
    const auto f = [&] {
      reference->linear_forward(view(x, batch, in), view(w, in, out), view(bias, 1, out), activation,
                                view(y, batch, out));
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
      return sum;
    };
    f();
    std::vector<double> d_y = weight, d_x(x.size()), d_w(w.size()), d_bias(bias.size());
    reference->linear_backward({.x = view(x, batch, in),
                                .w = view(w, in, out),
                                .y = view(y, batch, out),
                                .d_y = view(d_y, batch, out),
                                .d_w = view(d_w, in, out),
                                .d_bias = view(d_bias, 1, out),
                                .d_x = view(d_x, batch, in)},
                               activation, Accumulate::no);
    expect_slopes(x, d_x, f, "x");
    expect_slopes(w, d_w, f, "w");
    expect_slopes(bias, d_bias, f, "bias");
  }
}

TEST(Gradient, FunctionsOfEachElement) {
  const auto reference = std::make_unique<ReferenceBackend>();
  for (const Function function : kFunctions) {
    const Elementwise f{.function = function, .parameter = 0.25f};
    auto x = samples<double>("x", 40, 4);
    if (function == Function::log1p) {
      for (double& value : x) value = std::abs(value);
    }
    const auto weight = samples<double>("weight of the outputs", 40);
    std::vector<double> y(40), d_x(40);
    const auto sum = [&] {
      reference->elementwise_forward(f, view(x, 8, 5), view(y, 8, 5));
      double total = 0;
      for (std::size_t i = 0; i < y.size(); ++i) total += weight[i] * y[i];
      return total;
    };
    sum();
    std::vector<double> d_y = weight;
    const Tensor read = slope_reads(function) == SlopeReads::nothing  ? Tensor{}
                        : slope_reads(function) == SlopeReads::output ? view(y, 8, 5)
                                                                      : view(x, 8, 5);
    reference->elementwise_backward(f, read, view(d_y, 8, 5), view(d_x, 8, 5));
    EXPECT_EQ(d_y, weight);
    expect_slopes(x, d_x, sum, "function");
    sum();  // y for the original x
    reference->elementwise_backward(f, read, view(d_y, 8, 5), view(d_y, 8, 5));
    EXPECT_EQ(d_y, d_x) << "in place";
    reference->elementwise_forward(f, view(x, 8, 5), view(x, 8, 5));
    EXPECT_EQ(x, y) << "in place";
  }
}

TEST(Gradient, SoftmaxCrossEntropy) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 5, classes = 4;
  auto logits = samples<double>("logits", batch * classes, 3);
  auto answer = labels(batch, classes);
  const double scale = 0.2;
  auto gradient = logits;
  softmax_cross_entropy(*reference, view(gradient, batch, classes), view(answer, batch, 1), scale, true);
  expect_slopes(
      logits, gradient,
      [&] {
        return scale *
               softmax_cross_entropy(*reference, view(logits, batch, classes), view(answer, batch, 1), scale, false)
                   .loss;
      },
      "logit");
}

TEST(Gradient, SoftCrossEntropy) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 5, classes = 4;
  for (const float smoothing : {0.0f, 0.1f}) {
    auto logits = samples<double>("logits", batch * classes, 3);
    auto targets = test::probabilities(batch, classes);
    targets[1] += 0.25f;  // the formula holds for any sum of targets
    LossOptions options{.scale = 0.2, .want_gradient = true, .smoothing = smoothing};
    auto gradient = logits;
    test::soft_cross_entropy(*reference, view(gradient, batch, classes), view(targets, batch, classes), options);
    options.want_gradient = false;
    expect_slopes(
        logits, gradient,
        [&] {
          return options.scale * test::soft_cross_entropy(*reference, view(logits, batch, classes),
                                                          view(targets, batch, classes), options)
                                     .loss;
        },
        "logit");
  }
}

TEST(Gradient, SoftDice) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t samples_here = 3, positions = 6, classes = 4, rows = samples_here * positions;
  auto logits = samples<double>("logits", rows * classes, 3);
  auto answer = labels(rows, classes);
  answer[2] = answer[7] = kNoClass;
  std::fill(answer.begin() + 2 * positions, answer.end(), 1);  // a sample with only one class
  LossOptions options{.scale = 0.2, .want_gradient = true};
  auto gradient = logits;
  test::soft_dice(*reference, view(gradient, rows, classes), view(answer, rows, 1), positions, options);
  options.want_gradient = false;
  expect_slopes(
      logits, gradient,
      [&] {
        return options.scale *
               test::soft_dice(*reference, view(logits, rows, classes), view(answer, rows, 1), positions, options).loss;
      },
      "logit");
}

TEST(SoftDice, IsZeroWhereEveryPositionIsRightAndOneHalfOfWhatIsHalfRight) {
  const auto reference = std::make_unique<ReferenceBackend>();
  std::vector<double> logits{100, 0, 100, 0, 0, 100, 0, 100};  // four positions, two classes
  std::vector<std::int32_t> answer{0, 0, 1, 1};
  const auto loss = [&] { return test::soft_dice(*reference, view(logits, 4, 2), view(answer, 4, 1), 4, {}).loss / 4; };
  EXPECT_NEAR(loss(), 0, 1e-12);
  answer = {0, 1, 1, 0};  // half of each class is correct: 1 - (2 + 1) / (4 + 1)
  EXPECT_NEAR(loss(), 0.4, 1e-12);
  answer = {kNoClass, kNoClass, kNoClass, kNoClass};
  EXPECT_NEAR(loss(), 0, 1e-12) << "nothing to find, nothing said";
}

TEST(Gradient, MeanSquaredError) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 5, outputs = 3;
  auto predictions = samples<double>("p", batch * outputs);
  auto targets = samples<float>("t", batch * outputs);
  const double scale = 0.2;
  auto gradient = predictions;
  mean_squared_error(*reference, view(gradient, batch, outputs), view(targets, batch, outputs), scale, true);
  expect_slopes(
      predictions, gradient,
      [&] {
        return scale * mean_squared_error(*reference, view(predictions, batch, outputs), view(targets, batch, outputs),
                                          scale, false)
                           .loss;
      },
      "prediction");
}

TEST(Gradient, BinaryCrossEntropy) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 5, outputs = 3;
  for (const float smoothing : {0.0f, 0.1f}) {
    auto logits = samples<double>("logits", batch * outputs, 3);
    auto targets = binary(batch * outputs);
    LossOptions options{.scale = 0.2, .want_gradient = true, .smoothing = smoothing};
    auto gradient = logits;
    binary_cross_entropy(*reference, view(gradient, batch, outputs), view(targets, batch, outputs), options);
    options.want_gradient = false;
    expect_slopes(
        logits, gradient,
        [&] {
          return options.scale *
                 binary_cross_entropy(*reference, view(logits, batch, outputs), view(targets, batch, outputs), options)
                     .loss;
        },
        "logit");
  }
}

/// Uses errors on both sides of the corner in Huber's loss, none within a step of it.
TEST(Gradient, OtherErrors) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 9, outputs = 3;
  for (const ErrorLoss of_error : {ErrorLoss::absolute, ErrorLoss::huber}) {
    auto predictions = samples<double>("p", batch * outputs, 2);
    auto targets = samples<float>("t", batch * outputs);
    LossOptions options{.scale = 0.2, .want_gradient = true, .of_error = of_error};
    auto gradient = predictions;
    mean_error(*reference, view(gradient, batch, outputs), view(targets, batch, outputs), options);
    options.want_gradient = false;
    expect_slopes(
        predictions, gradient,
        [&] {
          return options.scale *
                 mean_error(*reference, view(predictions, batch, outputs), view(targets, batch, outputs), options).loss;
        },
        "prediction");
  }
}

TEST(Gradient, WeightsOfRows) {
  const auto reference = std::make_unique<ReferenceBackend>();
  const std::int64_t batch = 7, outputs = 3;
  auto weight = test::weights(batch), targets = samples<float>("t", batch * outputs), there = binary(batch * outputs);
  auto answer = labels(batch, outputs);
  const auto check = [&](const std::function<LossSums(const Tensor&, const LossOptions&)>& loss,
                         std::string_view what) {
    LossOptions options{.scale = 0.2, .want_gradient = true, .smoothing = 0, .weights = view(weight, batch, 1)};
    auto z = samples<double>("z", batch * outputs, 2);
    auto gradient = z;
    const LossSums weighted = loss(view(gradient, batch, outputs), options);
    options.want_gradient = false;
    expect_slopes(
        z, gradient, [&] { return options.scale * loss(view(z, batch, outputs), options).loss; }, what);
    options.weights = {};
    const LossSums plain = loss(view(z, batch, outputs), options);
    EXPECT_EQ(weighted.metric, plain.metric) << what << ": weights are of the loss alone";
    EXPECT_NE(weighted.loss, plain.loss) << what;
  };
  check([&](const Tensor& z,
            const LossOptions& o) { return softmax_cross_entropy(*reference, z, view(answer, batch, 1), o); },
        "softmax cross-entropy");
  check([&](const Tensor& z,
            const LossOptions& o) { return binary_cross_entropy(*reference, z, view(there, batch, outputs), o); },
        "binary cross-entropy");
  for (const ErrorLoss of_error : {ErrorLoss::squared, ErrorLoss::absolute, ErrorLoss::huber}) {
    check(
        [&](const Tensor& z, LossOptions o) {
          o.of_error = of_error;
          return mean_error(*reference, z, view(targets, batch, outputs), o);
        },
        "error");
  }
}

struct NetworkCase {
  std::vector<std::int64_t> hidden;
  Activation activation;
  LossKind loss;
};

class NetworkGradient : public ::testing::TestWithParam<NetworkCase> {};

/// Tests the whole network through Network::forward and backward, by changing parameters in the arena.
TEST_P(NetworkGradient, MatchesFiniteDifferences) {
  const auto& [hidden, activation, loss] = GetParam();
  const std::int64_t batch = 6, features = 5, outputs = 3;
  test::NetworkInDoubles net(
      test::dense_layers(hidden, name_of(activation), {.features = features, .outputs = outputs}), batch);
  const Network& network = *net.network;
  const ParameterTable& table = net.table();
  auto x = samples<double>("x", batch * features);
  auto answer = labels(batch, outputs);
  auto targets =
      loss == LossKind::binary_cross_entropy ? binary(batch * outputs) : samples<float>("targets", batch * outputs);
  const double scale = 1.0 / batch;
  const auto pass = [&](bool want_gradient) {
    const Pass made = net.pass(view(x, batch, features));
    const Tensor output = network.forward(made);
    const LossSums sums =
        loss == LossKind::softmax_cross_entropy
            ? softmax_cross_entropy(*net.backend, output, view(answer, batch, 1), scale, want_gradient)
        : loss == LossKind::binary_cross_entropy
            ? binary_cross_entropy(*net.backend, output, view(targets, batch, outputs),
                                   {.scale = scale, .want_gradient = want_gradient})
            : mean_squared_error(*net.backend, output, view(targets, batch, outputs), scale, want_gradient);
    if (want_gradient) network.backward(made, Accumulate::no, {});
    return scale * sums.loss;
  };
  pass(true);
  const std::vector<double> analytic = net.gradients;
  for (const Parameter& parameter : table.all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      EXPECT_NEAR(slope(net.parameters[i], [&] { return pass(false); }), analytic[i], kTolerance) << parameter.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, NetworkGradient,
                         ::testing::Values(NetworkCase{{}, Activation::none, LossKind::softmax_cross_entropy},
                                           NetworkCase{{}, Activation::none, LossKind::mean_squared_error},
                                           NetworkCase{{7}, Activation::none, LossKind::mean_squared_error},
                                           NetworkCase{{7}, Activation::relu, LossKind::softmax_cross_entropy},
                                           NetworkCase{{7, 4}, Activation::relu, LossKind::mean_squared_error},
                                           NetworkCase{{7, 4, 9}, Activation::tanh, LossKind::softmax_cross_entropy},
                                           NetworkCase{{7, 4}, Activation::tanh, LossKind::mean_squared_error},
                                           NetworkCase{{4, 9}, Activation::sigmoid, LossKind::softmax_cross_entropy},
                                           NetworkCase{{7, 4}, Activation::tanh, LossKind::binary_cross_entropy},
                                           NetworkCase{{7}, Activation::sigmoid, LossKind::mean_squared_error}));

}  // namespace
}  // namespace lockstep::model
