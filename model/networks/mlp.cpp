#include "model/networks/mlp.hpp"

#include <stdexcept>

#include "model/networks/dense_chain.hpp"

namespace lockstep::model {

std::unique_ptr<Network> make_mlp(const NetworkOptions& options, const SampleShape& shape) {
  if (options.hidden.empty()) {
    throw std::invalid_argument("network mlp needs at least one hidden layer (network linear has none)");
  }
  return std::make_unique<DenseChain>("mlp", options.hidden, options, shape);
}

}  // namespace lockstep::model
