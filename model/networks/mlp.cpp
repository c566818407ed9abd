/// \file
/// "mlp", the multilayer perceptron: hidden layers of given widths with one activation, then a linear output layer.
#include "model/layers/dense_chain.hpp"
#include "model/layers/option_check.hpp"
#include "model/network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  require_known_options(options, {"hidden", "activation"});
  return std::make_unique<DenseChain>(
      "mlp", options.hidden.empty() ? std::vector<std::int64_t>{512, 512} : options.hidden, options, shape);
}

}  // namespace

extern const NetworkKind mlp_network;
const NetworkKind mlp_network{
    .name = "mlp", .summary = "multilayer perceptron: dense layers of the widths in --hidden", .make = make};

}  // namespace lockstep::model
