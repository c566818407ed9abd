#include "model/network.hpp"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParameterSpec spec(std::string name, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .shape = std::move(shape), .initializer = {}};
}

TEST(ParameterTable, LaysSlicesOutInReverseOrderAtMultiplesOf64) {
  ParameterTable table;
  table.add(spec("a", {10, 7}));
  table.add(spec("b", {64}));
  table.add(spec("c", {3}));
  table.freeze();
  EXPECT_EQ(table[2].offset, 0u);
  EXPECT_EQ(table[1].offset, 64u);
  EXPECT_EQ(table[0].offset, 128u);
  EXPECT_EQ(table.arena_elements(), 256u);
  EXPECT_EQ(table.parameter_count(), 137);
  EXPECT_THAT(table.slice_ends(), ElementsAre(64, 128, 256));
  EXPECT_EQ(table.slice_end(0), 256u);
  EXPECT_EQ(table.slice_end(2), 64u);
  EXPECT_THAT(table.signature(), HasSubstr("a [10,7] @128\n"));
}

TEST(ParameterTable, RefusesNonsense) {
  ParameterTable table;
  table.add(spec("a", {1}));
  EXPECT_THROW(table.add(spec("a", {1})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("b", {})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("b", {4, 0})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("", {4})), std::invalid_argument);
  table.freeze();
  EXPECT_THROW(table.add(spec("b", {4})), std::invalid_argument);
}

TEST(ParameterTable, KeepsStatisticsBehindAllWeights) {
  ParameterTable table;
  table.add(spec("a", {70}));
  ParameterSpec statistic = spec("a/mean", {5});
  statistic.role = Role::statistic;
  table.add(statistic);
  table.add(spec("b", {3}));
  table.freeze();
  EXPECT_EQ(table[2].offset, 0u);
  EXPECT_EQ(table[0].offset, 64u);
  EXPECT_EQ(table[1].offset, 192u);
  EXPECT_EQ(table.trained_elements(), 192u);
  EXPECT_EQ(table.arena_elements(), 256u);
  EXPECT_EQ(table.parameter_count(), 73) << "statistics are not parameters";
  EXPECT_EQ(table[1].decay, Decay::no);
}

SampleShape features(std::int64_t inputs, std::int64_t outputs) { return {.features = inputs, .outputs = outputs}; }
SampleShape images(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t outputs) {
  const ImageShape image{height, width, channels};
  return {.features = image.elements(), .outputs = outputs, .image = image};
}
SampleShape tokens(std::int64_t context, std::int64_t vocabulary) {
  return {.features = context, .outputs = vocabulary, .tokens = true};
}

std::int64_t parameters_of(const NetworkOptions& options, const SampleShape& shape) {
  const auto network = make_network(options, shape);
  std::int64_t planned = 0;
  for (const LayerPlan& line : network->plan()) planned += line.parameters;
  EXPECT_EQ(planned, network->parameters().parameter_count()) << "the plan's lines must add up";
  return planned;
}

double forward_flops(const NetworkOptions& options, const SampleShape& shape) {
  double flops = 0;
  for (const LayerPlan& line : make_network(options, shape)->plan()) flops += line.forward_flops;
  return flops;
}

TEST(Network, PlanOfAnMlp) {
  const auto network =
      make_network({.name = "mlp", .hidden = {512, 128}, .activation = Activation::tanh}, features(784, 10));
  const auto plan = network->plan();
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].name, "dense_1");
  EXPECT_EQ(plan[0].description, "784 -> 512, tanh");
  EXPECT_EQ(plan[2].description, "128 -> 10");
  EXPECT_EQ(plan[1].parameters, 512 * 128 + 128);
  EXPECT_EQ(plan[1].activation_elements, 128);
  EXPECT_EQ(plan[0].forward_flops, 2.0 * 784 * 512);
  EXPECT_EQ(plan[0].backward_flops, 2.0 * 784 * 512) << "the first layer has no input gradient";
  EXPECT_EQ(plan[1].backward_flops, 4.0 * 512 * 128);
  EXPECT_EQ(network->parameters().parameter_count(), 784 * 512 + 512 + 512 * 128 + 128 + 128 * 10 + 10);
}

TEST(Network, SizesAreThePublishedOnes) {
  EXPECT_EQ(parameters_of({.name = "mlp"}, features(784, 10)), 669706) << "512 and 512 where nothing is said";
  EXPECT_EQ(parameters_of({.name = "cnn"}, images(24, 24, 3, 10)), 1068298);  // TensorFlow's tutorial
  EXPECT_EQ(parameters_of({.name = "resnet"}, images(32, 32, 3, 10)), 269722);
  EXPECT_EQ(parameters_of({.name = "resnet", .depth = 32}, images(32, 32, 3, 10)), 464154);
  EXPECT_EQ(parameters_of({.name = "resnet", .depth = 56}, images(32, 32, 3, 10)), 853018);
  EXPECT_EQ(parameters_of({.name = "resnet", .depth = 18}, images(224, 224, 3, 1000)), 11689512);  // torchvision's
  EXPECT_EQ(parameters_of({.name = "resnet", .depth = 34}, images(224, 224, 3, 1000)), 21797672);
  EXPECT_EQ(parameters_of({.name = "resnet", .depth = 50}, images(224, 224, 3, 1000)), 25557032);
  EXPECT_EQ(parameters_of({.name = "lstm"}, tokens(20, 10000)),
            4651600);  // the PTB tutorial, small
  EXPECT_EQ(parameters_of({.name = "gpt", .layers = 12, .width = 768, .heads = 12}, tokens(1024, 50257)),
            124439808);  // GPT-2
  EXPECT_EQ(parameters_of({.name = "gpt"}, tokens(64, 65)), 809856);
}

TEST(Network, WorkIsThePublishedOne) {
  // Multiply-adds: 40.8 and 4,089 million (He et al. 2015 and torchvision).
  EXPECT_NEAR(forward_flops({.name = "resnet"}, images(32, 32, 3, 10)) / 2, 40.6e6, 0.3e6);
  EXPECT_NEAR(forward_flops({.name = "resnet", .depth = 50}, images(224, 224, 3, 1000)) / 2, 4089e6, 2e6);
  // Of attention, the half that the mask leaves: positions * (positions + 1) / 2 pairs, twice 2 * width each.
  const double without = forward_flops({.name = "gpt", .layers = 1, .width = 8, .heads = 2}, tokens(1, 7));
  const double with = forward_flops({.name = "gpt", .layers = 1, .width = 8, .heads = 2}, tokens(5, 7));
  EXPECT_EQ(with - 5 * without, (15 - 5) * 4.0 * 8);
  for (const NetworkOptions& options : {NetworkOptions{.name = "lstm"}, NetworkOptions{.name = "gpt"}}) {
    for (const LayerPlan& line : make_network(options, tokens(6, 9))->plan()) {
      EXPECT_EQ(line.backward_flops, 2 * line.forward_flops) << line.name;
    }
  }
}

TEST(Network, SignatureTellsNetworksApart) {
  const auto text = [](const NetworkOptions& options, const SampleShape& shape) {
    return make_network(options, shape)->signature();
  };
  EXPECT_EQ(text({.name = "mlp", .hidden = {8}}, features(4, 2)), "mlp 4-8-2 relu");
  EXPECT_EQ(text({.name = "linear"}, features(4, 2)), "linear 4-2");
  EXPECT_NE(text({.name = "mlp", .hidden = {8}, .activation = Activation::tanh}, features(4, 2)), "mlp 4-8-2 relu");
  EXPECT_EQ(text({.name = "cnn"}, images(24, 24, 3, 10)), "cnn 24x24x3-10 relu");
  EXPECT_EQ(text({.name = "resnet"}, images(32, 32, 3, 10)), "resnet 20 32x32x3-10");
  EXPECT_EQ(text({.name = "lstm"}, tokens(20, 100)), "lstm 2x200 vocabulary 100 context 20");
  EXPECT_EQ(text({.name = "lstm", .tied = true}, tokens(20, 100)), "lstm 2x200 vocabulary 100 context 20 tied");
  EXPECT_EQ(text({.name = "gpt"}, tokens(64, 100)), "gpt 4x128 heads 4 vocabulary 100 context 64");
  EXPECT_EQ(text({.name = "gpt", .tied = false}, tokens(64, 100)),
            "gpt 4x128 heads 4 vocabulary 100 context 64 untied");
}

TEST(Network, RefusesImpossibleOptions) {
  EXPECT_THROW(make_network({.name = "mpl", .hidden = {8}}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear", .hidden = {8}}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp", .hidden = {8, 0}}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, features(0, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, features(4, 0)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp"}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "cnn"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "cnn"}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "resnet", .depth = 21}, images(8, 8, 3, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "resnet"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm", .hidden = {8, 8}}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm", .dropout = 1}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .width = 10, .heads = 4}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .layers = -1}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .dropout = -0.1}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt"}, tokens(4, 0)), std::invalid_argument);
}

TEST(Network, RefusesOptionsOfOtherNetworks) {
  const auto refusal = [](const NetworkOptions& options, const SampleShape& shape) -> std::string {
    try {
      make_network(options, shape);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.name = "cnn", .depth = 20}, images(8, 8, 3, 2)),
            "network cnn has no option depth; it knows: activation");
  EXPECT_THAT(refusal({.name = "mlp", .layers = 2}, features(4, 2)), HasSubstr("layers"));
  EXPECT_THAT(refusal({.name = "resnet", .dropout = 0.5}, images(8, 8, 3, 2)), HasSubstr("dropout"));
  EXPECT_THAT(refusal({.name = "lstm", .heads = 2}, tokens(4, 7)), HasSubstr("heads"));
  EXPECT_THAT(refusal({.name = "gpt", .hidden = {8}}, tokens(4, 7)), HasSubstr("hidden"));
  EXPECT_THAT(refusal({.name = "gpt", .activation = Activation::tanh}, tokens(4, 7)), HasSubstr("activation"));
  EXPECT_THAT(refusal({.name = "cnn", .tied = false}, images(8, 8, 3, 2)), HasSubstr("tied"));
  EXPECT_THAT(refusal({.name = "lstm", .synchronize_batch_norm = true}, tokens(4, 7)),
              HasSubstr("synchronize_batch_norm"));
}

TEST(Network, KindsAreThoseOfTheFiles) {
  EXPECT_THAT(network_names(), ElementsAre("cnn", "gpt", "linear", "lstm", "mlp", "resnet"));
  EXPECT_TRUE(network_kind("gpt").tokens);
  EXPECT_TRUE(network_kind("lstm").tokens);
  EXPECT_FALSE(network_kind("resnet").tokens);
}

/// What L2 and weight decay apply to, by the end of the name.
TEST(Network, DecaysMatricesAlone) {
  const auto decayed = [](const NetworkOptions& options, const SampleShape& shape) {
    std::vector<std::string> names;
    const auto network = make_network(options, shape);
    for (const Parameter& parameter : network->parameters().all()) {
      if (parameter.decay == Decay::yes) names.push_back(parameter.name);
    }
    return names;
  };
  EXPECT_THAT(decayed({.name = "cnn"}, images(8, 8, 3, 2)), ElementsAre("dense_1/weight", "dense_2/weight"));
  EXPECT_THAT(decayed({.name = "lstm", .layers = 1}, tokens(4, 7)),
              ElementsAre("embedding/tokens", "lstm_1/input", "lstm_1/recurrent", "head/weight"));
  EXPECT_THAT(decayed({.name = "gpt", .layers = 1}, tokens(4, 7)),
              ElementsAre("embedding/tokens", "embedding/positions", "block_1/attention/joint/weight",
                          "block_1/attention/output/weight", "block_1/feed_forward/expand/weight",
                          "block_1/feed_forward/contract/weight"));
  for (const std::string& name : decayed({.name = "resnet"}, images(8, 8, 3, 2)))
    EXPECT_THAT(name, HasSubstr("/weight"));
  EXPECT_EQ(decayed({.name = "resnet"}, images(8, 8, 3, 2)).size(), 20u);
}

TEST(Network, BeginsAsItsPapersSay) {
  const auto initializer = [](const NetworkOptions& options, const SampleShape& shape, std::string_view name) {
    const auto network = make_network(options, shape);
    for (const Parameter& parameter : network->parameters().all()) {
      if (parameter.name == name) return to_string(parameter.initializer);
    }
    return std::string("no such parameter");
  };
  const SampleShape image = images(8, 8, 3, 2), text = tokens(4, 7);
  EXPECT_EQ(initializer({.name = "cnn"}, image, "conv_1/weight"), "truncated_normal(0.05)");
  EXPECT_EQ(initializer({.name = "cnn"}, image, "conv_1/bias"), "constant(0)");
  EXPECT_EQ(initializer({.name = "cnn"}, image, "conv_2/bias"), "constant(0.1)");
  EXPECT_EQ(initializer({.name = "cnn"}, image, "dense_2/weight"), "truncated_normal(0.04)");
  EXPECT_EQ(initializer({.name = "resnet"}, image, "stage_1/block_1/conv_1/norm/scale"), "constant(1)");
  EXPECT_EQ(initializer({.name = "resnet"}, image, "stage_1/block_1/conv_2/norm/scale"), "constant(0)");
  EXPECT_EQ(initializer({.name = "resnet"}, image, "stem/norm/running_variance"), "constant(1)");
  EXPECT_EQ(initializer({.name = "resnet"}, image, "stage_2/block_1/conv_1/weight"), "normal(0.08333333333333333)")
      << "sqrt(2 / (9 * 32))";
  EXPECT_EQ(initializer({.name = "lstm"}, text, "lstm_2/recurrent"), "uniform(0.1)");
  EXPECT_EQ(initializer({.name = "gpt"}, text, "block_4/attention/joint/weight"), "normal(0.02)");
  EXPECT_EQ(initializer({.name = "gpt", .layers = 8}, text, "block_8/feed_forward/contract/weight"), "normal(0.005)");
  EXPECT_EQ(initializer({.name = "gpt", .weight_initializer = Initializer{Initializer::Scheme::normal, 0.5}}, text,
                        "block_4/attention/output/weight"),
            "normal(0.5)");
}

}  // namespace
}  // namespace lockstep::model
