/// \file
/// A small network for each kind of operation, for tests that compare gradients: a dense layer, the operation, and a
/// dense layer with two outputs, so that there are trained parameters on both sides.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/graph/description.hpp"

namespace lockstep::model::test {

inline Call operation_call(std::string kind, decltype(Call::arguments) arguments = {}) {
  std::string name = "one_" + kind;
  return {.kind = std::move(kind), .name = std::move(name), .arguments = std::move(arguments)};
}

inline Description network_with(const Shape& in, std::vector<Call> calls) {
  Description description{.input_shape = in, .calls = {}};
  description.calls.push_back({.kind = "dense", .name = "before", .arguments = {{"units", in.last()}}});
  for (Call& call : calls) description.calls.push_back(std::move(call));
  description.calls.push_back({.kind = "flatten", .name = "flat"});
  description.calls.push_back({.kind = "dense", .name = "behind", .arguments = {{"units", 2}}});
  return description;
}

/// Networks with operations on windows, in the directions of `in`. The channels must be a multiple of 4.
inline std::vector<Description> networks_of_windows(const Shape& in) {
  const auto call = [](std::string kind, decltype(Call::arguments) arguments = {}) {
    return operation_call(std::move(kind), std::move(arguments));
  };
  return {
      network_with(in, {call("conv", {{"channels", 3}, {"kernel", Numbers{3}}, {"activation", "tanh"}})}),
      network_with(
          in,
          {call(
              "conv",
              {{"channels", 4}, {"kernel", Numbers{2}}, {"stride", Numbers{2}}, {"groups", 2}, {"padding", "valid"}})}),
      network_with(
          in,
          {call("conv",
                {{"channels", in.last()}, {"kernel", Numbers{3}}, {"dilation", Numbers{2}}, {"groups", in.last()}})}),
      network_with(in, {call("conv-transpose", {{"channels", 3}, {"kernel", Numbers{2}}, {"stride", Numbers{2}}})}),
      network_with(in, {call("conv-transpose", {{"channels", 2},
                                                {"kernel", Numbers{3}},
                                                {"stride", Numbers{2}},
                                                {"padding", "1"},
                                                {"groups", 2},
                                                {"activation", "sigmoid"}})}),
      network_with(in, {call("max-pool", {{"window", Numbers{2}}})}),
      network_with(in, {call("average-pool", {{"window", Numbers{3}}, {"stride", Numbers{2}}})}),
      network_with(in, {call("average-pool", {{"window", Numbers{3}}, {"count-padding", true}})}),
      network_with(in, {call("upsample", {{"factor", Numbers{2}}})}),
      network_with(in, {call("upsample", {{"factor", Numbers{2}}, {"mode", "linear"}})}),
      network_with(in, {call("upsample", {{"factor", Numbers{3}}, {"mode", "linear"}})}),
      network_with(in, {call("global-average")}),
      network_with(in, {call("global-max")}),
  };
}

/// Networks with operations on the channels and on the extents of `image`, height x width x channels.
inline std::vector<Description> networks_of_channels(const Shape& image) {
  const auto call = [](std::string kind, decltype(Call::arguments) arguments = {}) {
    return operation_call(std::move(kind), std::move(arguments));
  };
  std::vector<Description> networks{
      network_with(image, {call("group-norm", {{"groups", 2}})}),
      network_with(image, {call("group-norm")}),
      network_with(image, {call("instance-norm")}),
      network_with(image, {call("softmax")}),
      network_with(image, {call("slice", {{"axis", 0}, {"begin", 1}})}),
      network_with(image, {call("slice", {{"begin", -3}, {"end", -1}})}),
      network_with(image, {call("slice", {{"axis", -3}, {"step", 2}})}),
      network_with(image, {call("transpose", {{"order", Numbers{2, 0, 1}}})}),
      network_with(image, {call("reshape", {{"shape", Numbers{-1, 2}}}), call("softmax")}),
      network_with(image, {call("mean", {{"axis", 1}})}),
      network_with(image, {call("mean", {{"axis", -1}})}),
      network_with(image, {call("positions")}),
  };
  for (const char* function : {"gelu-exact", "softplus", "hard-sigmoid", "hard-swish"}) {
    networks.push_back(network_with(image, {call("elementwise", {{"function", function}})}));
  }
  Call excited = call("multiply", {});
  excited.from = {"before", "one_global-average"};
  networks.push_back(network_with(image, {call("global-average", {}), excited}));
  Call squared = call("multiply", {});
  squared.from = {"before", "before"};
  networks.push_back(network_with(image, {squared}));
  Call joined = call("concatenate", {});
  joined.from = {"before", "one_softmax"};
  networks.push_back(network_with(image, {call("softmax", {}), joined}));
  for (const std::int64_t axis : {0, 1}) {
    Call stacked = call("concatenate", {{"axis", axis}});
    stacked.from = {"one_softmax", "before"};
    networks.push_back(network_with(image, {call("softmax", {}), stacked}));
  }
  for (const bool transposed : {false, true}) {
    Call turned = call("transpose", {{"order", transposed ? Numbers{0, 1, 2} : Numbers{0, 2, 1}}});
    Call product = call("matmul", {{"transpose", transposed}});
    product.from = {"before", "one_transpose"};
    networks.push_back(network_with(image, {turned, product}));
  }
  Call square = call("matmul", {{"transpose", true}});
  square.from = {"before", "before"};
  networks.push_back(network_with(image, {square}));
  Call tokens = call("constant", {{"shape", Numbers{2, image.extents()[1], image.last()}}});
  Call below = call("concatenate", {{"axis", 0}});
  below.from = {"before", "one_constant"};
  networks.push_back(network_with(image, {tokens, below}));
  return networks;
}

/// Networks with operations on series, steps x numbers. The numbers must be a multiple of 6.
inline std::vector<Description> networks_of_series(const Shape& series) {
  const auto call = [](std::string kind, decltype(Call::arguments) arguments = {}) {
    return operation_call(std::move(kind), std::move(arguments));
  };
  std::vector<Description> networks;
  for (const char* kind : {"lstm", "gru"}) {
    for (const char* direction : {"forward", "backward", "both"}) {
      for (const char* steps : {"all", "last"}) {
        networks.push_back(network_with(
            series, {call(kind, {{"units", series.last() / 2}, {"direction", direction}, {"steps", steps}})}));
      }
    }
    Call second = call(kind, {{"units", 3}});
    second.name = "second";
    networks.push_back(network_with(series, {call(kind, {{"units", 3}}), second}));
  }
  networks.push_back(network_with(series, {call("attention", {{"heads", 2}, {"causal", false}})}));
  networks.push_back(network_with(series, {call("attention", {{"heads", 2}})}));
  networks.push_back(network_with(series, {call("positions", {})}));
  return networks;
}

}  // namespace lockstep::model::test
