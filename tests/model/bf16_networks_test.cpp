// Networks with bf16 products on the CPU: compares gradients with float64, and the bits of several steps with one, two
// and three threads.
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu_against_reference.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/yaml/network_template.hpp"
#include "network_harness.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t kBatch = 20;

struct Bf16Case {
  std::string label;
  NetworkOptions options;
  SampleShape shape;
};
void PrintTo(const Bf16Case& network, std::ostream* out) { *out << network.label; }

class Bf16Network : public ::testing::TestWithParam<Bf16Case> {
 protected:
  /// Parameters and gradients after `steps` steps.
  struct Result {
    std::vector<double> parameters, gradients;
  };
  /// noise: name of a stream of relative errors, up to 2^-8, of the initial weights; empty: none.
  Result train(Backend& backend, std::int64_t steps, std::string_view noise = "") const {
    const SampleShape& shape = GetParam().shape;
    const OptimizerOptions optimizer{.kind = OptimizerKind::momentum};
    test::SeededTraining training(backend, *network_,
                                  {.loss = LossKind::softmax_cross_entropy,
                                   .max_batch = kBatch,
                                   .sample_type = shape.tokens ? ElementType::int32 : ElementType::float32,
                                   .sequences = kBatch},
                                  {.optimizer = optimizer});
    if (!noise.empty()) {
      auto weights = training.parameters.parameters().elements<double>();
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= 1 + 0x1p-8 * test::sample(noise, i);
    }
    const std::int64_t positions = shape.tokens ? shape.features : 1;
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto x = test::samples<float>(fmt::format("x {}", step), kBatch * shape.features);
      const auto tokens = test::labels(kBatch * shape.features, shape.outputs);
      auto y = test::labels(kBatch * positions + 1, shape.outputs);
      y.erase(y.begin());
      const auto keys = test::sample_keys(kBatch, step * kBatch);
      test::forward_backward(training,
                             {.x = shape.tokens ? host_tensor(tokens.data(), kBatch, shape.features)
                                                : host_tensor(x.data(), kBatch, shape.features),
                              .y = host_tensor(y.data(), kBatch, positions),
                              .keys = host_tensor(keys.data(), kBatch, 1),
                              .begins = step == 0},
                             1.0 / kBatch);
      if (step + 1 < steps) test::finish_step(training, update_rule(optimizer, 0.02, step));
    }
    const auto numbers = [](const Tensor& arena) {
      std::vector<double> all(static_cast<std::size_t>(arena.count()));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = test::element(arena, i);
      return all;
    };
    return {numbers(training.parameters.parameters()), numbers(training.parameters.gradients())};
  }
  Result train_on_cpu(Bf16Unit unit, int threads, std::int64_t steps) const {
    return train(*make_backend("cpu", {.threads = threads, .bf16_unit = unit}), steps);
  }
  /// Returns |got - right| / |right| for one parameter.
  static double distance(const Parameter& parameter, const std::vector<double>& got, const std::vector<double>& right) {
    double difference = 0, length = 0;
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      difference += (got[i] - right[i]) * (got[i] - right[i]);
      length += right[i] * right[i];
    }
    return length == 0 ? std::sqrt(difference) : std::sqrt(difference / length);
  }

  const std::unique_ptr<Network> network_ = make_network(GetParam().options, GetParam().shape);
};

// A gradient may be the difference of much larger terms. The tolerance is therefore measured with weights that have
// errors of up to 2^-8, the largest rounding of a factor.
TEST_P(Bf16Network, GradientsAreThoseOfFloat64WithinTheRounding) {
  ReferenceBackend reference;
  const Result right = train(reference, 1), fp32 = train_on_cpu(Bf16Unit::none, 1, 1);
  std::vector<Result> off;
  for (const std::string_view noise : {"one", "two", "three"}) off.push_back(train(reference, 1, noise));
  for (const Bf16Unit unit : test::bf16_units()) {
    const Result got = train_on_cpu(unit, 1, 1);
    double worst = 0, closest = 0;
    for (const Parameter& parameter : network_->parameters().all()) {
      if (parameter.role == Role::statistic) continue;
      // The gradient of a bias before a batch norm is only rounding.
      if (distance(parameter, fp32.gradients, right.gradients) > 1e-3) continue;
      double bound = 2 * 0x1p-8;
      for (const Result& one : off) {
        bound = std::max(bound, 2 * 0x1p-8 + 4 * distance(parameter, one.gradients, right.gradients));
      }
      const double own = distance(parameter, got.gradients, right.gradients);
      worst = std::max(worst, own);
      EXPECT_LT(own, bound) << parameter.name << ", " << describe(unit);
      closest = std::max(closest, own / bound);
    }
    EXPECT_GT(worst, 0x1p-12) << "nothing was rounded, " << describe(unit);
    EXPECT_GT(closest, 0.05) << "the bound would let everything through, " << describe(unit);
  }
}

TEST_P(Bf16Network, StepsHaveTheSameBitsWithAnyNumberOfThreads) {
  for (const Bf16Unit unit : test::bf16_units()) {
    const Result one = train_on_cpu(unit, 1, 3);
    EXPECT_EQ(train_on_cpu(unit, 1, 3).parameters, one.parameters) << describe(unit) << ", a second run";
    for (const int threads : {2, 3}) {
      const Result other = train_on_cpu(unit, threads, 3);
      EXPECT_EQ(other.parameters, one.parameters) << describe(unit) << ", " << threads << " threads";
      EXPECT_EQ(other.gradients, one.gradients) << describe(unit) << ", " << threads << " threads";
    }
  }
}

/// A U-Net of one level.
NetworkOptions u_net() {
  constexpr std::string_view kFile = R"(name: u_net
network:
  - conv: {channels: 8, kernel: 3, norm: {group: {groups: 2}}, activation: relu, name: left}
  - max-pool: {window: 2, stride: 2}
  - conv: {channels: 16, kernel: 3, norm: instance, activation: relu}
  - conv-transpose: {channels: 8, kernel: 2, stride: 2}
  - concatenate: [left]
  - conv: {channels: 20, kernel: 3, norm: {group: {groups: 4}}, activation: relu}
  - global-average:
  - dense: {units: $outputs, name: head}
)";
  return {.name = "net.yaml",
          .source = std::make_shared<const NetworkKind>(read_network(std::string(kFile), "net.yaml"))};
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Bf16Network,
    ::testing::Values(
        Bf16Case{.label = "linear", .options = {.name = "linear"}, .shape = {.features = 37, .outputs = 17}},
        Bf16Case{.label = "mlp",
                 .options = {.name = "mlp", .values = {{"hidden", Numbers{49, 33}}, {"dropout", 0.25}}},
                 .shape = {.features = 40, .outputs = 10}},
        Bf16Case{.label = "cnn", .options = {.name = "cnn"}, .shape = test::images(8, 8, 3, 10)},
        Bf16Case{.label = "resnet_20", .options = {.name = "resnet"}, .shape = test::images(8, 8, 3, 10)},
        Bf16Case{.label = "u_net", .options = u_net(), .shape = test::images(12, 12, 3, 10)},
        Bf16Case{.label = "lstm",
                 .options = {.name = "lstm", .values = {{"hidden", Numbers{20}}, {"dropout", 0.25}}},
                 .shape = test::tokens(6, 40)},
        Bf16Case{.label = "gpt",
                 .options = {.name = "gpt", .values = {{"layers", 2}, {"width", 32}, {"heads", 2}, {"dropout", 0.1}}},
                 .shape = test::tokens(41, 40)}),
    [](const auto& network) { return network.param.label; });

}  // namespace
}  // namespace lockstep::model
