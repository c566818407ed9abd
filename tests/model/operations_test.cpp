// Each kind of operation in a small network: compares gradients with finite differences in float64, and tests that
// invalid arguments and inputs are refused.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/graph/graph.hpp"
#include "network_harness.hpp"
#include "operation_networks.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using test::network_with;
using test::NetworkInDoubles;
using ::testing::HasSubstr;
using Arguments = decltype(Call::arguments);

void expect_slopes(const Description& description) {
  const std::string what = description.calls[1].kind;
  const SampleShape shape{.features = description.input_shape.elements(), .outputs = 2};
  NetworkInDoubles net(std::make_unique<Network>(description, shape, "test"), 4);
  const test::SampleBatch batch(shape, 3);
  const auto loss = [&](bool gradient) {
    const Pass pass = net.pass(batch.input, batch.keys);
    const Tensor output = net.network->forward(pass);
    const double value = net.loss(pass, output, batch.y, 1.0 / 3, gradient);
    if (gradient) net.network->backward(pass, Accumulate::no, {});
    return value;
  };
  loss(true);
  const std::vector<double> gradients = net.gradients;
  double largest = 0;
  for (const Parameter& parameter : net.table().all()) {
    if (parameter.role == Role::statistic) continue;
    for (std::size_t i = 0; i < std::min<std::size_t>(parameter.count, 8); ++i) {
      double& weight = net.parameters[parameter.offset + i];
      const double before = weight, step = 1e-5;
      weight = before + step;
      const double above = loss(false);
      weight = before - step;
      const double below = loss(false);
      weight = before;
      const double slope = (above - below) / (2 * step), gradient = gradients[parameter.offset + i];
      EXPECT_NEAR(slope, gradient, 1e-8 + 1e-6 * std::abs(gradient)) << what << ": " << parameter.name << " " << i;
      largest = std::max(largest, std::abs(gradient));
    }
  }
  EXPECT_GT(largest, 1e-4) << what << ": no gradient comes through";
}

Call call(std::string kind, Arguments arguments = {}) {
  return test::operation_call(std::move(kind), std::move(arguments));
}

TEST(Operations, OfWindowsHaveTheGradientsOfFiniteDifferences) {
  const Shape series{9, 4}, image{6, 5, 4}, volume{4, 3, 4, 4};
  for (const Shape& in : {series, image, volume}) {
    for (const Description& network : test::networks_of_windows(in)) expect_slopes(network);
  }
  expect_slopes(network_with(
      image,
      {call("conv", {{"channels", 3}, {"kernel", Numbers{1, 3}}, {"stride", Numbers{2, 1}}, {"padding", "0,1"}})}));
  expect_slopes(network_with(volume, {call("max-pool", {{"window", Numbers{2, 1, 2}}})}));
  expect_slopes(network_with(image, {call("upsample", {{"factor", Numbers{1, 3}}})}));
  expect_slopes(network_with(image, {call("upsample", {{"factor", Numbers{4, 1}}, {"mode", "linear"}})}));
}

TEST(Operations, OfChannelsHaveTheGradientsOfFiniteDifferences) {
  for (const Description& network : test::networks_of_channels({3, 2, 4})) expect_slopes(network);
}

TEST(Operations, OfSeriesHaveTheGradientsOfFiniteDifferences) {
  for (const Description& network : test::networks_of_series({5, 6})) expect_slopes(network);
}

/// Returns the network's output for one sample.
std::vector<double> output_of(const Description& description, std::vector<double> in, std::int64_t outputs) {
  const SampleShape shape{.features = description.input_shape.elements(), .outputs = outputs};
  NetworkInDoubles net(std::make_unique<Network>(description, shape, "test"), 4);
  const Pass pass = net.pass(test::view(in, 1, shape.features), {});
  const auto values = net.network->forward(pass).elements<double>();
  return {values.begin(), values.end()};
}

TEST(Operations, OfSeriesGoInTheirDirection) {
  const auto series = test::samples<double>("series", 15);
  std::vector<double> turned(series);
  for (std::ptrdiff_t t = 0; t < 5; ++t) std::copy_n(series.begin() + 3 * t, 3, turned.end() - 3 * (t + 1));
  for (const char* kind : {"lstm", "gru"}) {
    const auto output = [&](const char* direction, const std::vector<double>& in, bool last = false) {
      return output_of(
          {.input_shape = {5, 3},
           .calls = {call(kind, {{"units", 2}, {"direction", direction}, {"steps", last ? "last" : "all"}}),
                     {.kind = "flatten", .name = "flat"}}},
          in, last ? 2 : 10);
    };
    const auto forward = output("forward", series);
    EXPECT_EQ(output("forward", series, true), std::vector(forward.end() - 2, forward.end())) << kind;
    auto backward = output("backward", turned);
    EXPECT_EQ(output("backward", turned, true), std::vector(backward.begin(), backward.begin() + 2)) << kind;
    for (std::size_t t = 0; t < 2; ++t) {
      for (std::size_t u = 0; u < 2; ++u) std::swap(backward[2 * t + u], backward[2 * (4 - t) + u]);
    }
    EXPECT_EQ(backward, forward) << kind << ": the series from its end, with the same weights";
  }
}

TEST(Operations, OfSeriesSayWhatTheyRead) {
  EXPECT_EQ(
      [] {
        return lockstep::test::message_of<std::invalid_argument>([&] {
          Network({.input_shape = {4, 4, 2}, .calls = {call("gru", {{"units", 2}})}}, {.features = 32, .outputs = 2},
                  "test");
        });
      }(),
      "one_gru reads 4x4x2, and a gru reads steps x numbers: reshape or transpose makes a series of it");
}

std::string refusal(const Shape& in, Call one) {
  return lockstep::test::message_of<std::invalid_argument>(
      [&] { Network(network_with(in, {std::move(one)}), {.features = in.elements(), .outputs = 2}, "test"); });
}

TEST(Operations, SayWhatDoesNotFit) {
  const Shape image{6, 5, 4};
  const auto conv = [](Arguments more) {
    more.emplace("channels", 4);
    more.emplace("kernel", Numbers{3});
    return call("conv", std::move(more));
  };
  EXPECT_EQ(refusal(image, conv({})), "");
  EXPECT_EQ(
      refusal(Shape{4}, conv({})),
      "one_conv reads 4, and a convolution reads length x channels, height x width x channels or depth x height x "
      "width x channels");
  EXPECT_EQ(refusal(image, conv({{"stride", Numbers{1, 2, 3}}})),
            "one_conv has 3 numbers in stride (1,2,3) for a value of 2 directions: give one, or 2");
  EXPECT_EQ(refusal(image, conv({{"padding", "some"}})),
            "one_conv has padding some: give same, valid, one number, or one for each direction (1,0)");
  EXPECT_THAT(refusal(image, conv({{"padding", "-1"}})), HasSubstr("has padding -1: give same"));
  EXPECT_THAT(refusal(image, conv({{"padding", "1,"}})), HasSubstr("has padding 1,: give same"));
  EXPECT_EQ(refusal(image, conv({{"padding", "valid"}, {"dilation", Numbers{1, 3}}})),
            "one_conv has a window of 7 places along an extent of 5: make kernel smaller, or give padding same");
  EXPECT_EQ(refusal(image, conv({{"groups", 3}})),
            "one_conv makes 4 channels of 4 in 3 groups: the groups must divide both");
  EXPECT_THAT(refusal(image, conv({{"dilation", Numbers{0}}})), HasSubstr("dilation 0, which must be at least 1"));
  EXPECT_THAT(refusal(image, conv({{"stride", Numbers{70000}}})), HasSubstr("must be less than 65536"));
  EXPECT_THAT(refusal(Shape{4, 4, 4, 4}, call("max-pool", {{"window", Numbers{7}}})),
              HasSubstr("has a window of 343 places: a greatest value is looked for among at most 256"));
  EXPECT_EQ(refusal(image, call("average-pool", {{"window", Numbers{2}}, {"padding", "2"}})),
            "one_average-pool has padding 2, and some of its windows see nothing else of 6x5x4: give less");
  EXPECT_EQ(refusal(image, call("conv-transpose", {{"channels", 2}, {"kernel", Numbers{2}}, {"padding", "9"}})),
            "one_conv-transpose has padding 9, which leaves nothing of 6x5x4: give less");
  EXPECT_EQ(refusal(image, call("group-norm", {{"groups", 3}})),
            "one_group-norm makes 3 groups of 4 channels: the groups must divide them");
  EXPECT_EQ(refusal(image, call("slice", {{"axis", 3}})), "one_slice has axis 3, and 6x5x4 has -3 to 2");
  EXPECT_THAT(refusal(image, call("slice", {{"begin", 4}})), HasSubstr("takes 4 to 4 of an extent of 4"));
  EXPECT_EQ(refusal(image, call("transpose", {{"order", Numbers{0, 1, 1}}})),
            "one_transpose puts the extents of 6x5x4 in the order 0,1,1: each of 0 to 2 must be in it once");
  EXPECT_EQ(refusal(image, call("reshape", {{"shape", Numbers{7, -1}}})),
            "one_reshape makes 7x-1 of 6x5x4: no extent makes the elements as many");
  Call product = call("multiply");
  product.from = {"before", "input"};
  EXPECT_EQ(refusal(image, product), "");
  EXPECT_THAT(refusal(image, call("multiply")), HasSubstr("reads 1 values; multiply reads 2"));
  Call matrices = call("matmul");
  matrices.from = {"before", "input"};
  EXPECT_EQ(
      refusal(image, matrices),
      "one_matmul multiplies 6x5x4 by 6x5x4: they must be [.., rows, inner] and [.., inner, columns], with the same "
      "extents before");
  matrices.arguments["transpose"] = true;
  EXPECT_EQ(refusal(image, matrices), "");
  Call joined = call("concatenate", {{"axis", -4}});
  joined.from = {"before", "input"};
  EXPECT_EQ(refusal(image, joined), "one_concatenate has axis -4, and 6x5x4 has -3 to 2");
  EXPECT_THAT(refusal(image, call("constant")), HasSubstr("shape"));
}

}  // namespace
}  // namespace lockstep::model
