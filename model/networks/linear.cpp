/// \file
/// "linear": one dense layer from features to outputs. With cross-entropy it is softmax regression, with squared error
/// linear regression.
#include "model/layers/dense_chain.hpp"
#include "model/network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<DenseChain>("linear", Numbers{}, options, shape);
}

}  // namespace

extern const NetworkKind linear_network;
const NetworkKind linear_network{.name = "linear",
                                 .summary = "softmax or linear regression: one dense layer",
                                 .options = {weight_init_option(), bias_init_option()},
                                 .make = make};

}  // namespace lockstep::model
