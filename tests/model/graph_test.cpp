// Descriptions that are no networks are refused with the name of the call, and graphs have the memory and the plan that
// follow from them.
#include "model/graph/graph.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/network.hpp"
#include "network_harness.hpp"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string graph_refusal(const Description& description, std::int64_t outputs = 2) {
  try {
    Network(description, {.features = description.input_shape.elements(), .outputs = outputs}, "test");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

Call dense(std::string name, std::int64_t units, std::vector<std::string> from = {}) {
  return {.kind = "dense", .name = std::move(name), .from = std::move(from), .arguments = {{"units", units}}};
}

TEST(Graph, RefusesWhatIsNoNetwork) {
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2)}}), "");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {}}), "a network needs at least one operation");
  EXPECT_THAT(graph_refusal({.input_shape = {4}, .calls = {{.kind = "densee", .name = "a"}}}),
              HasSubstr("a is a densee, which is no operation; there are add, "));
  EXPECT_EQ(graph_refusal({.input_shape = {4},
                           .calls = {{.kind = "dense", .name = "a", .arguments = {{"units", 2}}, .place = "net.yaml:3"},
                                     dense("b", 2, {"c"})}}),
            "b reads c, and no operation before it has that name; there are a, input");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {{.kind = "dense", .name = "a", .place = "net.yaml:3"}}}),
            "net.yaml:3: a needs a value of units");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 0)}}), "a has units 0, which must be at least 1");
  EXPECT_THAT(
      graph_refusal({.input_shape = {4}, .calls = {{.kind = "dense", .name = "a", .arguments = {{"unit", 2}}}}}),
      HasSubstr("a has an argument unit, which dense does not take; it takes: units, activation"));
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2), dense("b", 2, {"input"})}}),
            "a is read by no operation");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2), dense("a", 2)}}),
            "a has the name of an earlier operation");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("", 2)}}), " an operation needs a name");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {{.kind = "add", .name = "a"}, dense("b", 2)}}),
            "a reads 1 values; add reads 2 to 16");
  EXPECT_EQ(graph_refusal(
                {.input_shape = {4}, .calls = {dense("a", 3), {.kind = "add", .name = "b", .from = {"a", "input"}}}}),
            "b adds 3 and 4: they must have one shape");
  EXPECT_EQ(
      graph_refusal(
          {.input_shape = {4}, .calls = {{.kind = "max-pool", .name = "a", .arguments = {{"window", Numbers{2}}}}}}),
      "a reads 4, and a pool reads length x channels, height x width x channels or depth x height x width x channels");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 3)}}),
            "the network's output is 3 of each sample, and the data ask for 2: end with `dense: $outputs`");
  EXPECT_EQ(
      graph_refusal({.input_shape = {2}, .calls = {{.kind = "dropout", .name = "a", .arguments = {{"rate", 0.5}}}}}),
      "the network has no parameters: nothing can be trained");
}

TEST(Shape, RefusesNonsense) {
  EXPECT_THROW((Shape{3, 0}), std::invalid_argument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), std::invalid_argument);
  EXPECT_THROW((Shape{std::int64_t{1} << 30, std::int64_t{1} << 30, 16}), std::invalid_argument);
  EXPECT_EQ((Shape{4, 5, 6}).places(), 20);
  EXPECT_EQ(to_string(Shape{4, 5, 6}), "4x5x6");
}

TEST(Graph, GradientsOfFrozenBranchesAreLeftOut) {
  // Two branches from the input, added up: freezing one leaves its nodes out of the backward pass.
  Description description{.input_shape = {4},
                          .calls = {dense("left", 3, {"input"}),
                                    dense("right", 3, {"input"}),
                                    {.kind = "add", .name = "sum", .from = {"left", "right"}},
                                    dense("top", 2)}};
  Network network(description, {.features = 4, .outputs = 2}, "branches");
  const auto flops = [&] {
    std::vector<double> each;
    for (const LayerPlan& line : network.plan()) each.push_back(line.backward_flops);
    return each;
  };
  EXPECT_THAT(flops(), ElementsAre(24, 24, 0, 24)) << "the gradient of the input is not needed";
  network.freeze(std::vector<std::size_t>{0, 1});
  EXPECT_THAT(flops(), ElementsAre(0, 24, 0, 24));
  network.freeze(std::vector<std::size_t>{2, 3});
  EXPECT_THAT(flops(), ElementsAre(0, 0, 0, 12)) << "nobody trains below";
}

TEST(Graph, EvaluationTakesLessMemoryThanTraining) {
  const auto network = make_network({.name = "mlp", .values = {{"hidden", Numbers(20, 64)}, {"dropout", 0.1}}},
                                    {.features = 64, .outputs = 10});
  const auto bytes = [&](Purpose purpose) {
    return ActivationLayout(network->activations(purpose), 16, test::kDoubles).bytes();
  };
  EXPECT_EQ(bytes(Purpose::evaluation), 2u * 16 * 64 * 8) << "one layer's input and output";
  EXPECT_GT(bytes(Purpose::training), 20u * 16 * 64 * 8);
}

}  // namespace
}  // namespace lockstep::model
