/// \file
/// "mlp", the multilayer perceptron: hidden layers of given widths with one activation, then a linear output layer.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/graph_network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  Description description{.input_shape = {shape.features}, .calls = {}};
  const auto dense = [&](std::int64_t units, const std::string& activation) {
    Call call{.kind = "dense",
              .name = fmt::format("dense_{}", 1 + std::ranges::count(description.calls, "dense", &Call::kind)),
              .arguments = {{"units", units}, {"activation", activation}}};
    if (const auto weights = options.initializer("weight-init")) call.set_initializer("init", *weights);
    if (const auto biases = options.initializer("bias-init")) call.set_initializer("bias-init", *biases);
    description.calls.push_back(std::move(call));
  };
  const auto hidden = options.get<Numbers>("hidden");
  const auto activation = options.get<std::string>("activation");
  const auto dropout = options.get<double>("dropout");
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    dense(hidden[i], activation);
    if (dropout > 0) {
      description.calls.push_back(
          {.kind = "dropout", .name = fmt::format("dropout_{}", i + 1), .arguments = {{"rate", dropout}}});
    }
  }
  dense(shape.outputs, "none");
  const std::string widths = hidden.empty() ? "" : fmt::format("{}-", fmt::join(hidden, "-"));
  return std::make_unique<GraphNetwork>(
      description, shape,
      fmt::format("mlp {}-{}{}{}", shape.features, widths, shape.outputs, hidden.empty() ? "" : " " + activation));
}

}  // namespace

extern const NetworkKind mlp_network;
const NetworkKind mlp_network{.name = "mlp",
                              .summary = "multilayer perceptron: dense layers of the widths in --hidden",
                              .options = {{.name = "hidden",
                                           .value = Numbers{512, 512},
                                           .value_name = "WIDTHS",
                                           .help = "widths of the hidden layers, comma-separated; of fewer than 20000 "
                                                   "samples 64,64",
                                           .at_least = 1},
                                          activation_option(),
                                          dropout_option(),
                                          weight_init_option(),
                                          bias_init_option()},
                              .small_data = {{"hidden", Numbers{64, 64}}},
                              .make = make};

}  // namespace lockstep::model
