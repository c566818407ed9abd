/// \file
/// "linear": one dense layer from features to outputs. With cross-entropy it is softmax regression, with squared error
/// linear regression.
#include <fmt/format.h>

#include "model/graph/graph_network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  Call dense{.kind = "dense", .name = "dense_1", .arguments = {{"units", shape.outputs}}};
  if (const auto weights = options.initializer("weight-init")) dense.set_initializer("init", *weights);
  if (const auto biases = options.initializer("bias-init")) dense.set_initializer("bias-init", *biases);
  return std::make_unique<GraphNetwork>(Description{.input_shape = {shape.features}, .calls = {dense}}, shape,
                                        fmt::format("linear {}-{}", shape.features, shape.outputs));
}

}  // namespace

extern const NetworkKind linear_network;
const NetworkKind linear_network{.name = "linear",
                                 .summary = "softmax or linear regression: one dense layer",
                                 .options = {weight_init_option(), bias_init_option()},
                                 .make = make};

}  // namespace lockstep::model
