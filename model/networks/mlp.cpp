/// \file
/// "mlp", the multilayer perceptron: hidden layers of given widths with one activation, then a linear output layer.
#include "model/layers/dense_chain.hpp"
#include "model/network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<DenseChain>("mlp", options.get<Numbers>("hidden"), options, shape);
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
