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

TEST(Network, PlanOfAnMlp) {
  const auto network = make_network({.name = "mlp", .hidden = {512, 128}, .activation = Activation::tanh}, {784, 10});
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

TEST(Network, SignatureTellsNetworksApart) {
  const auto text = [](NetworkOptions options, SampleShape shape) { return make_network(options, shape)->signature(); };
  EXPECT_EQ(text({.name = "mlp", .hidden = {8}}, {4, 2}), "mlp 4-8-2 relu");
  EXPECT_EQ(text({.name = "linear"}, {4, 2}), "linear 4-2");
  EXPECT_NE(text({.name = "mlp", .hidden = {8}, .activation = Activation::tanh}, {4, 2}), "mlp 4-8-2 relu");
}

TEST(Network, RefusesImpossibleOptions) {
  EXPECT_THROW(make_network({.name = "mpl", .hidden = {8}}, {4, 2}), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp"}, {4, 2}), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear", .hidden = {8}}, {4, 2}), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp", .hidden = {8, 0}}, {4, 2}), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, {0, 2}), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "linear"}, {4, 0}), std::invalid_argument);
  EXPECT_THAT(network_names(), ElementsAre("linear", "mlp"));
}

}  // namespace
}  // namespace lockstep::model
