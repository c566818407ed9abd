/// \file
/// "linear": one dense layer from features to outputs. With cross-entropy softmax regression, with squared error linear
/// regression.
#include <stdexcept>

#include "model/layers/dense_chain.hpp"
#include "model/layers/option_check.hpp"
#include "model/network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  if (!options.hidden.empty()) {
    throw std::invalid_argument("network linear has no hidden layers (network mlp has)");
  }
  require_known_options(options, {"activation"});
  return std::make_unique<DenseChain>("linear", std::vector<std::int64_t>{}, options, shape);
}

}  // namespace

extern const NetworkKind linear_network;
const NetworkKind linear_network{
    .name = "linear", .summary = "softmax or linear regression: one dense layer", .make = make};

}  // namespace lockstep::model
