#include "model/networks/linear.hpp"

#include <stdexcept>

#include "model/networks/dense_chain.hpp"

namespace lockstep::model {

std::unique_ptr<Network> make_linear(const NetworkOptions& options, const SampleShape& shape) {
  if (!options.hidden.empty()) {
    throw std::invalid_argument("network linear has no hidden layers (network mlp has)");
  }
  return std::make_unique<DenseChain>("linear", std::vector<std::int64_t>{}, options, shape);
}

}  // namespace lockstep::model
