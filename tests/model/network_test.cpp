#include "model/network.hpp"

#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/activation_table.hpp"
#include "model/network_kinds.hpp"
#include "network_harness.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using test::images;
using test::tokens;
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
  table.lay_out();
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

TEST(ParameterTable, KeepsRoomForPaddingThatNobodySees) {
  ParameterTable table;
  table.add(spec("a", {3, 64}));
  ParameterSpec padded = spec("b", {5, 64});
  padded.padding = 3 * 64;
  table.add(padded);
  table.lay_out();
  EXPECT_EQ(table[1].count, 320u);
  EXPECT_EQ(table.slice_end(1), 512u);
  EXPECT_EQ(table[0].offset, 512u);
  EXPECT_THAT(table.slice_ends(), ElementsAre(512, 704));
  EXPECT_EQ(table.parameter_count(), 512);
}

TEST(ActivationLayout, PadsColumnsInBfloat16Alone) {
  ActivationTable table;
  const std::size_t logits = table.add({.name = "logits", .rows = 2, .columns = 37, .padded_columns = 40});
  EXPECT_EQ(table.elements_per_sample(), 74);
  std::array<std::byte, 1024> memory{};
  const auto columns = [&](ElementType compute) {
    return ActivationLayout(table, 3, {.compute = compute}).at(logits, memory.data(), 3).columns;
  };
  EXPECT_EQ(columns(ElementType::float32), 37);
  EXPECT_EQ(columns(ElementType::float64), 37);
  EXPECT_EQ(columns(ElementType::bfloat16), 40);
  EXPECT_EQ(ActivationLayout(table, 3, {.compute = ElementType::bfloat16}).bytes(), 512u) << "6 * 40 * 2 bytes";
}

TEST(Vocabulary, IsPaddedToWholeTiles) {
  EXPECT_EQ(padded_columns(50257), 50304);
  EXPECT_EQ(padded_columns(50304), 50304);
  EXPECT_EQ(padded_columns(65), 72);
  EXPECT_EQ(padded_columns(8), 8);
}

TEST(ParameterTable, RefusesNonsense) {
  ParameterTable table;
  table.add(spec("a", {1}));
  EXPECT_THROW(table.add(spec("a", {1})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("b", {})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("b", {4, 0})), std::invalid_argument);
  EXPECT_THROW(table.add(spec("", {4})), std::invalid_argument);
  table.lay_out();
  EXPECT_THROW(table.add(spec("b", {4})), std::invalid_argument);
}

TEST(ParameterTable, KeepsStatisticsBehindAllWeights) {
  ParameterTable table;
  table.add(spec("a", {70}));
  ParameterSpec statistic = spec("a/mean", {5});
  statistic.role = Role::statistic;
  table.add(statistic);
  table.add(spec("b", {3}));
  table.lay_out();
  EXPECT_EQ(table[2].offset, 0u);
  EXPECT_EQ(table[0].offset, 64u);
  EXPECT_EQ(table[1].offset, 192u);
  EXPECT_EQ(table.trained_elements(), 192u);
  EXPECT_EQ(table.arena_elements(), 256u);
  EXPECT_EQ(table.parameter_count(), 73) << "statistics are not parameters";
  EXPECT_EQ(table[1].decay, Decay::no);
}

TEST(ParameterTable, KeepsWhatIsFrozenBehindAllThatChanges) {
  ParameterTable table;
  table.add(spec("a", {70}));
  const std::size_t scale = table.add(spec("b/scale", {5}));
  ParameterSpec statistic = spec("b/mean", {5});
  statistic.role = Role::statistic;
  statistic.frozen_with = scale;
  table.add(statistic);
  table.add(spec("c", {3}));
  table.lay_out();
  EXPECT_FALSE(table.has_frozen());
  EXPECT_EQ(table.updated_elements(), table.arena_elements());
  EXPECT_EQ(table.gradients_end(1), 128u);

  table.freeze(std::vector<std::size_t>{0});
  EXPECT_EQ(table[3].offset, 0u);
  EXPECT_EQ(table[1].offset, 64u);
  EXPECT_EQ(table[2].offset, 128u);
  EXPECT_EQ(table[0].offset, 192u);
  EXPECT_EQ(table.trained_elements(), 128u);
  EXPECT_EQ(table.updated_elements(), 192u);
  EXPECT_EQ(table.arena_elements(), 320u);
  EXPECT_EQ(table.trained_count(), 8);
  EXPECT_EQ(table.parameter_count(), 78);
  EXPECT_THAT(table.slice_ends(), ElementsAre(64, 128, 192));
  EXPECT_FALSE(table.trains_below(1));
  EXPECT_TRUE(table.trains_below(2));
  EXPECT_EQ(table.gradients_end(0), 128u);

  table.freeze(std::vector<std::size_t>{3});
  EXPECT_EQ(table.gradients_end(2), 0u) << "nothing is trained from there on";
}

TEST(ParameterTable, RefusesToFreezeAllOrAPartOfANormalisation) {
  const auto refusal = [](const std::vector<std::size_t>& indices) -> std::string {
    ParameterTable table;
    table.add(spec("a/scale", {70}));
    ParameterSpec shift = spec("a/shift", {5});
    shift.frozen_with = 0;
    table.add(shift);
    table.add(spec("b", {3}));
    table.lay_out();
    return lockstep::test::message_of<std::invalid_argument>([&] { table.freeze(indices); });
  };
  EXPECT_EQ(refusal({0, 1}), "");
  EXPECT_THAT(refusal({0, 1, 2}), HasSubstr("nothing is left to train"));
  EXPECT_THAT(refusal({1}), HasSubstr("a/shift is frozen and a/scale is not"));
  EXPECT_THAT(refusal({0}), HasSubstr("a/scale is frozen and a/shift is not"));
}

TEST(ParameterTable, TakesALearningRateForWhatIsTrained) {
  ParameterTable table;
  table.add(spec("a", {70}));
  table.add(spec("b", {3}));
  table.lay_out();
  table.freeze(std::vector<std::size_t>{0});
  table.set_rate_scale(1, 0.5);
  EXPECT_EQ(table[1].rate_scale, 0.5f);
  EXPECT_THROW(table.set_rate_scale(0, 0.5), std::invalid_argument);
  EXPECT_THROW(table.set_rate_scale(1, 0), std::invalid_argument);
  EXPECT_THROW(table.set_rate_scale(1, std::nan("")), std::invalid_argument);
}

SampleShape features(std::int64_t inputs, std::int64_t outputs) { return {.features = inputs, .outputs = outputs}; }

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
  const auto network = make_network({.name = "mlp", .values = {{"hidden", Numbers{512, 128}}, {"activation", "tanh"}}},
                                    features(784, 10));
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
  EXPECT_EQ(parameters_of({.name = "resnet", .values = {{"depth", 32}}}, images(32, 32, 3, 10)), 464154);
  EXPECT_EQ(parameters_of({.name = "resnet", .values = {{"depth", 56}}}, images(32, 32, 3, 10)), 853018);
  EXPECT_EQ(parameters_of({.name = "resnet", .values = {{"depth", 18}}}, images(224, 224, 3, 1000)),
            11689512);  // torchvision's
  EXPECT_EQ(parameters_of({.name = "resnet", .values = {{"depth", 34}}}, images(224, 224, 3, 1000)), 21797672);
  EXPECT_EQ(parameters_of({.name = "resnet", .values = {{"depth", 50}}}, images(224, 224, 3, 1000)), 25557032);
  EXPECT_EQ(parameters_of({.name = "lstm"}, tokens(20, 10000)),
            4651600);  // the PTB tutorial, small
  EXPECT_EQ(
      parameters_of({.name = "gpt", .values = {{"layers", 12}, {"width", 768}, {"heads", 12}}}, tokens(1024, 50257)),
      124439808);  // GPT-2
  EXPECT_EQ(parameters_of({.name = "gpt"}, tokens(64, 65)), 809856);
}

TEST(Network, WorkIsThePublishedOne) {
  // Multiply-adds: 40.8 and 4,089 million (He et al. 2015 and torchvision).
  EXPECT_NEAR(forward_flops({.name = "resnet"}, images(32, 32, 3, 10)) / 2, 40.6e6, 0.3e6);
  EXPECT_NEAR(forward_flops({.name = "resnet", .values = {{"depth", 50}}}, images(224, 224, 3, 1000)) / 2, 4089e6, 2e6);
  // Attention counts the unmasked half: positions * (positions + 1) / 2 pairs, twice 2 * width each.
  const double without =
      forward_flops({.name = "gpt", .values = {{"layers", 1}, {"width", 8}, {"heads", 2}}}, tokens(1, 7));
  const double with =
      forward_flops({.name = "gpt", .values = {{"layers", 1}, {"width", 8}, {"heads", 2}}}, tokens(5, 7));
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
  EXPECT_EQ(text({.name = "mlp", .values = {{"hidden", Numbers{8}}}}, features(4, 2)), "mlp 4-8-2 relu");
  EXPECT_EQ(text({.name = "linear"}, features(4, 2)), "linear 4-2");
  EXPECT_NE(text({.name = "mlp", .values = {{"hidden", Numbers{8}}, {"activation", "tanh"}}}, features(4, 2)),
            "mlp 4-8-2 relu");
  EXPECT_EQ(text({.name = "cnn"}, images(24, 24, 3, 10)), "cnn 24x24x3-10 relu");
  EXPECT_EQ(text({.name = "resnet"}, images(32, 32, 3, 10)), "resnet 20 32x32x3-10");
  EXPECT_EQ(text({.name = "lstm"}, tokens(20, 100)), "lstm 2x200 vocabulary 100 context 20");
  EXPECT_EQ(text({.name = "lstm", .values = {{"tied", true}}}, tokens(20, 100)),
            "lstm 2x200 vocabulary 100 context 20 tied");
  EXPECT_EQ(text({.name = "gpt"}, tokens(64, 100)), "gpt 4x128 heads 4 vocabulary 100 context 64");
  EXPECT_EQ(text({.name = "gpt", .values = {{"tied", false}}}, tokens(64, 100)),
            "gpt 4x128 heads 4 vocabulary 100 context 64 untied");
}

TEST(Network, RefusesImpossibleOptions) {
  EXPECT_THROW(make_network({.name = "mpl", .values = {{"hidden", Numbers{8}}}}, features(4, 2)),
               std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear", .values = {{"hidden", Numbers{8}}}}, features(4, 2)),
               std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp", .values = {{"hidden", Numbers{8, 0}}}}, features(4, 2)),
               std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, features(0, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, features(4, 0)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp"}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "cnn"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "cnn"}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "resnet", .values = {{"depth", 21}}}, images(8, 8, 3, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "resnet"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm"}, features(4, 2)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm", .values = {{"hidden", Numbers{8, 8}}}}, tokens(4, 7)),
               std::invalid_argument);
  EXPECT_THROW(make_network({.name = "lstm", .values = {{"dropout", 1.0}}}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .values = {{"width", 10}, {"heads", 4}}}, tokens(4, 7)),
               std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .values = {{"layers", -1}}}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt", .values = {{"dropout", -0.1}}}, tokens(4, 7)), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "gpt"}, tokens(4, 0)), std::invalid_argument);
}

TEST(Network, RefusesOptionsOfOtherNetworks) {
  const auto refusal = [](const NetworkOptions& options, const SampleShape& shape) -> std::string {
    return lockstep::test::message_of<std::invalid_argument>([&] { make_network(options, shape); });
  };
  EXPECT_EQ(refusal({.name = "cnn", .values = {{"depth", 20}}}, images(8, 8, 3, 2)),
            "network cnn has no option depth; it knows: activation, dropout, weight-init, bias-init");
  EXPECT_THAT(refusal({.name = "mlp", .values = {{"layers", 2}}}, features(4, 2)), HasSubstr("layers"));
  EXPECT_THAT(refusal({.name = "resnet", .values = {{"dropout", 0.5}}}, images(8, 8, 3, 2)), HasSubstr("dropout"));
  EXPECT_THAT(refusal({.name = "lstm", .values = {{"heads", 2}}}, tokens(4, 7)), HasSubstr("heads"));
  EXPECT_THAT(refusal({.name = "gpt", .values = {{"hidden", Numbers{8}}}}, tokens(4, 7)), HasSubstr("hidden"));
  EXPECT_THAT(refusal({.name = "gpt", .values = {{"activation", "tanh"}}}, tokens(4, 7)), HasSubstr("activation"));
  EXPECT_THAT(refusal({.name = "cnn", .values = {{"tied", false}}}, images(8, 8, 3, 2)), HasSubstr("tied"));
  EXPECT_THAT(refusal({.name = "lstm", .values = {{"sync-batch-norm", true}}}, tokens(4, 7)),
              HasSubstr("sync-batch-norm"));
}

TEST(Network, KindsAreThoseOfTheFiles) {
  EXPECT_THAT(network_names(), ElementsAre("cnn", "gpt", "linear", "lstm", "mlp", "resnet"));
  EXPECT_EQ(network_kind("gpt").reads, Reads::tokens);
  EXPECT_EQ(network_kind("lstm").reads, Reads::tokens);
  EXPECT_EQ(network_kind("resnet").reads, Reads::images);
  EXPECT_EQ(network_kind("mlp").reads, Reads::features);
}

TEST(Network, KindsTellWhatTheyAre) {
  std::map<std::string_view, std::size_t> types;
  for (const NetworkKind& kind : network_kinds()) {
    EXPECT_FALSE(kind.summary.empty()) << kind.name;
    for (const NetworkOption& option : kind.options) {
      EXPECT_EQ(types.try_emplace(option.name, option.value.index()).first->second, option.value.index())
          << option.name << " has one type, whatever the network";
      EXPECT_EQ(option.automatic ? "" : objection(option, option.value), "") << kind.name << " " << option.name;
      EXPECT_FALSE(option.help.empty()) << kind.name << " " << option.name;
    }
    EXPECT_EQ(kind.reads == Reads::tokens, kind.find(kind.window) != nullptr) << kind.name;
  }
  EXPECT_TRUE(network_kind("lstm").recurrent);
  EXPECT_FALSE(network_kind("gpt").recurrent);
}

TEST(Network, OptionsThatAreNotSetHaveTheValueOfTheKind) {
  EXPECT_EQ(with_defaults({.name = "gpt"}).get<std::int64_t>("layers"), 4);
  EXPECT_EQ(with_defaults({.name = "lstm"}).get<std::int64_t>("layers"), 2);
  EXPECT_EQ(with_defaults({.name = "gpt", .values = {{"layers", 3}}}).get<std::int64_t>("layers"), 3);
  EXPECT_FALSE(with_defaults({.name = "gpt"}).initializer("weight-init").has_value()) << "the network decides";
  EXPECT_EQ(tokens_per_sample({.name = "lstm"}), 20);
  EXPECT_EQ(tokens_per_sample({.name = "gpt", .values = {{"context", 9}}}), 9);
  EXPECT_EQ(tokens_per_sample({.name = "mlp"}), 0);
}

TEST(NetworkOption, AllowsItsTypeAndRangeAlone) {
  const NetworkOption count{.name = "n", .value = 4, .value_name = "N", .help = "", .at_least = 1};
  const NetworkOption share{.name = "s", .value = 0.5, .value_name = "S", .help = "", .at_least = 0, .below = 1};
  const NetworkOption list{.name = "l", .value = Numbers{4}, .value_name = "L", .help = "", .at_least = 1};
  const NetworkOption choice{.name = "c", .value = 4, .value_name = "C", .help = "", .one_of = {4, 5}};
  EXPECT_EQ(objection(count, 1), "");
  EXPECT_EQ(objection(count, 0), "must be at least 1");
  EXPECT_EQ(objection(count, 1.0), "is of another type");
  EXPECT_EQ(objection(share, 0.0), "");
  EXPECT_EQ(objection(share, 1.0), "must be less than 1");
  EXPECT_EQ(objection(share, std::nan("")), "must be at least 0");
  EXPECT_EQ(objection(list, Numbers{3, 0}), "must be at least 1");
  EXPECT_EQ(objection(choice, 5), "");
  EXPECT_EQ(objection(choice, 6), "is none of 4, 5");
}

/// Lists the decayed parameters, by the end of the name.
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
  EXPECT_THAT(decayed({.name = "lstm", .values = {{"layers", 1}}}, tokens(4, 7)),
              ElementsAre("embedding/tokens", "lstm_1/input", "lstm_1/recurrent", "head/weight"));
  EXPECT_THAT(decayed({.name = "gpt", .values = {{"layers", 1}}}, tokens(4, 7)),
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
  EXPECT_EQ(initializer({.name = "gpt", .values = {{"layers", 8}}}, text, "block_8/feed_forward/contract/weight"),
            "normal(0.005)");
  EXPECT_EQ(initializer({.name = "gpt", .values = {{"weight-init", parse_initializers("normal(0.5)")}}}, text,
                        "block_4/attention/output/weight"),
            "normal(0.5)");
}

TEST(NetworkInitializers, ALayerThatIsNamedHasItsOwn) {
  using enum Initializer::Scheme;
  const auto network =
      make_network({.name = "mlp",
                    .values = {{"hidden", Numbers{4, 3}},
                               {"weight-init", parse_initializers("zeros,dense_1=normal(0.0357),dense_3=constant(1)")},
                               {"bias-init", parse_initializers("dense_2=constant(2)")}}},
                   {.features = 5, .outputs = 2});
  std::map<std::string, Initializer> found;
  for (const Parameter& parameter : network->parameters().all()) found[parameter.name] = parameter.initializer;
  EXPECT_EQ(found["dense_1/weight"], (Initializer{normal, 0.0357}));
  EXPECT_EQ(found["dense_2/weight"], Initializer{zeros});
  EXPECT_EQ(found["dense_3/weight"], (Initializer{constant, 1}));
  EXPECT_EQ(found["dense_1/bias"], Initializer{zeros});
  EXPECT_EQ(found["dense_2/bias"], (Initializer{constant, 2}));
}

TEST(NetworkInitializers, ALayerThatIsNotThereIsRefusedWithTheNamesOfThoseThatAre) {
  try {
    make_network({.name = "mlp", .values = {{"weight-init", parse_initializers("dense_9=zeros")}}},
                 {.features = 5, .outputs = 2});
    FAIL() << "no such layer";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(
        std::string(error.what()).find("--weight-init: this network has no layer dense_9; there are dense_1, dense_2"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep::model
