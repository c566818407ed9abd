// Training of a part of a network on the CPU: the trained part makes the same steps as if only its gradients were
// applied, and the rest does not change.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "network_harness.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t kSamplesOfStep = 6;

struct FrozenCase {
  std::string label;
  NetworkOptions options;
  SampleShape shape;
};
void PrintTo(const FrozenCase& network, std::ostream* out) { *out << network.label; }

class FrozenNetwork : public ::testing::TestWithParam<FrozenCase> {
 protected:
  /// Returns the parameters without the weights that `frozen` selects by index.
  template <class Frozen>
  std::unique_ptr<Network> make(const Frozen& frozen) const {
    auto network = make_network(GetParam().options, GetParam().shape);
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < network->parameters().all().size(); ++i) {
      if (frozen(network->parameters()[i], i)) indices.push_back(i);
    }
    network->freeze(indices);
    return network;
  }
  ModelOptions model_options() const {
    return {.max_batch = kSamplesOfStep,
            .sample_type = GetParam().shape.tokens ? ElementType::int32 : ElementType::float32,
            .sequences = kSamplesOfStep};
  }
  Batch batch() const {
    const SampleShape& shape = GetParam().shape;
    return {.x = shape.tokens ? host_tensor(tokens_.data(), kSamplesOfStep, shape.features)
                              : host_tensor(x_.data(), kSamplesOfStep, shape.features),
            .y = host_tensor(labels_.data(), kSamplesOfStep, shape.tokens ? shape.features : 1)};
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu");
  std::vector<float> x_ = test::samples<float>("x", kSamplesOfStep* GetParam().shape.features);
  std::vector<std::int32_t> tokens_ =
      test::labels(kSamplesOfStep * GetParam().shape.features, GetParam().shape.outputs);
  std::vector<std::int32_t> labels_ =
      test::labels(kSamplesOfStep * GetParam().shape.features, GetParam().shape.outputs);
};

/// True for parameters of batch normalisation, which computes another function when it is frozen.
bool is_of_normalization(const Parameter& parameter) {
  return parameter.role == Role::statistic || parameter.name.find("/norm/") != std::string::npos;
}

TEST_P(FrozenNetwork, GradientsOfTheOthersAreTheSameBits) {
  const auto whole_network = make([](const Parameter&, std::size_t) { return false; });
  test::SeededTraining whole(*backend_, *whole_network, model_options(), {});
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    test::forward_backward(whole, batch(), 1.0 / kSamplesOfStep, accumulate);
  }
  const std::size_t count = whole_network->parameters().all().size();
  for (std::size_t cut = 1; cut < count; ++cut) {
    for (const bool lower : {true, false}) {
      const auto network = make([&](const Parameter& parameter, std::size_t i) {
        return !is_of_normalization(parameter) && (i < cut) == lower;
      });
      test::SeededTraining part(*backend_, *network, model_options(), {});
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        test::forward_backward(part, batch(), 1.0 / kSamplesOfStep, accumulate);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const Parameter &own = network->parameters()[i], &same = whole_network->parameters()[i];
        if (own.frozen) continue;
        const auto gradients = part.parameters.gradient_elements().subspan(own.offset, own.count);
        const auto expected = whole.parameters.gradient_elements().subspan(same.offset, same.count);
        ASSERT_TRUE(std::ranges::equal(gradients, expected)) << own.name << (lower ? " above " : " below ") << cut;
      }
    }
  }
}

/// Uses every operation of a step on a weight: L2, decay, clipping, momentum, an average.
TEST_P(FrozenNetwork, StaysAsItIsThroughEveryOptimiser) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam, OptimizerKind::adamw,
        OptimizerKind::lars, OptimizerKind::lamb}) {
    const auto network = make([&](const Parameter& parameter, std::size_t i) {
      return is_of_normalization(parameter) ? parameter.name.starts_with("stem") : i % 3 == 1;
    });
    const OptimizerOptions optimizer{
        .kind = kind, .l2 = 0.01, .weight_decay = 0.1, .clip_norm = 0.5, .average_decay = 0.5};
    test::SeededTraining training(*backend_, *network, model_options(), {.optimizer = optimizer});
    std::vector<float> before(training.parameters.elements()), after(before.size()), average(before.size());
    training.parameters.download_group("parameters", before);
    for (int step = 0; step < 3; ++step) {
      test::forward_backward(training, batch(), 1.0 / kSamplesOfStep);
      test::finish_step(training, update_rule(optimizer, 0.05, step));
    }
    training.parameters.download_group("parameters", after);
    training.parameters.download_group("average", average);
    bool some = false;
    for (const Parameter& parameter : network->parameters().all()) {
      const auto of = [&](const std::vector<float>& values) {
        return std::span(values).subspan(parameter.offset, parameter.count);
      };
      if (parameter.frozen) {
        some = true;
        EXPECT_TRUE(std::ranges::equal(of(before), of(after))) << parameter.name;
        EXPECT_TRUE(std::ranges::equal(of(before), of(average))) << parameter.name;
      } else if (!parameter.name.ends_with("/scale")) {  // scales of blocks that start as the identity barely change
        EXPECT_FALSE(std::ranges::equal(of(before), of(after))) << parameter.name;
      }
    }
    EXPECT_TRUE(some);
    for (const StateTensor& tensor : training.parameters.state_tensors()) {
      if (tensor.group != "parameters" && tensor.group != "average") {
        EXPECT_LT(tensor.offset, network->parameters().updated_elements()) << tensor.group << "/" << tensor.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, FrozenNetwork,
    ::testing::Values(
        FrozenCase{"mlp", {.name = "mlp", .values = {{"hidden", Numbers{9, 7}}}}, {.features = 11, .outputs = 3}},
        FrozenCase{"cnn", {.name = "cnn"}, test::images(8, 8, 2, 3)},
        FrozenCase{"resnet", {.name = "resnet", .values = {{"depth", 20}}}, test::images(8, 7, 2, 3)},
        FrozenCase{"lstm", {.name = "lstm", .values = {{"hidden", Numbers{5}}}}, test::tokens(4, 7)},
        FrozenCase{"gpt", {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}}}, test::tokens(5, 7)},
        FrozenCase{"gpt_untied",
                   {.name = "gpt", .values = {{"layers", 1}, {"width", 6}, {"heads", 3}, {"tied", false}}},
                   test::tokens(4, 7)}),
    [](const auto& network) { return network.param.label; });

/// A slice with a rate scale changes as with another learning rate; slices do not affect each other.
TEST(RateScale, IsALearningRateOfItsOwn) {
  const auto backend = make_backend("cpu");
  const std::vector<float> x = test::samples<float>("x", kSamplesOfStep * 11);
  const std::vector<std::int32_t> y = test::labels(kSamplesOfStep, 3);
  const Batch batch{.x = host_tensor(x.data(), kSamplesOfStep, 11), .y = host_tensor(y.data(), kSamplesOfStep, 1)};
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam, OptimizerKind::adamw,
        OptimizerKind::lars, OptimizerKind::lamb}) {
    const OptimizerOptions optimizer{.kind = kind, .weight_decay = 0.1};
    const auto stepped = [&](double rate, double scale) {
      const auto network =
          make_network({.name = "mlp", .values = {{"hidden", Numbers{9}}}}, {.features = 11, .outputs = 3});
      for (std::size_t i = 0; i < 2 && scale != 1; ++i) network->set_rate_scale(i, scale);
      test::SeededTraining training(*backend, *network, {.max_batch = kSamplesOfStep}, {.optimizer = optimizer});
      test::forward_backward(training, batch, 1.0 / kSamplesOfStep);
      test::finish_step(training, update_rule(optimizer, rate, 0));
      std::vector<std::vector<float>> weights;
      for (const Parameter& parameter : network->parameters().all()) {
        const auto now =
            training.parameters.weight_elements(Weights::current).subspan(parameter.offset, parameter.count);
        weights.emplace_back(now.begin(), now.end());
      }
      return weights;
    };
    const auto usual = stepped(0.25, 1), slow = stepped(0.125, 1), both = stepped(0.25, 0.5);
    for (std::size_t i = 0; i < both.size(); ++i) {
      EXPECT_EQ(both[i], i < 2 ? slow[i] : usual[i]) << i;
      EXPECT_NE(usual[i], slow[i]);
    }
  }
}

}  // namespace
}  // namespace lockstep::model
