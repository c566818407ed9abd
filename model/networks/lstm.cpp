/// \file
/// "lstm", the recurrent language model of the PTB tutorial (Zaremba, Sutskever & Vinyals 2014): embedding, LSTM layers
/// of one width, an output layer; dropout between layers, never between steps. The sequence's next window begins with
/// the state at the end of a window.
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/network.hpp"

namespace lockstep::model {

namespace {

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  const auto widths = options.get<Numbers>("hidden");
  if (widths.size() != 1) throw std::invalid_argument("network lstm has one hidden width for all its layers");
  const std::int64_t hidden = widths.front();
  const auto layers = options.get<std::int64_t>("layers");
  const auto dropout = options.get<double>("dropout");
  const bool tied = options.get<bool>("tied");
  const Initializer weights =
      options.initializer("weight-init").value_or(Initializer{.scheme = Initializer::Scheme::uniform, .value = 0.1});
  Description network{.input = "tokens", .input_shape = {shape.features}, .input_holds = Holds::tokens, .calls = {}};
  const auto add = [&](std::string kind, std::string name, decltype(Call::arguments) arguments) -> Call& {
    network.calls.push_back({.kind = std::move(kind), .name = std::move(name), .arguments = std::move(arguments)});
    return network.calls.back();
  };
  const auto drop_behind = [&](const std::string& name) {
    if (dropout > 0) add("dropout", name + "/dropout", {{"rate", dropout}});
  };
  add("embedding", "embedding", {{"vocabulary", shape.outputs}, {"width", hidden}}).set_initializer("init", weights);
  drop_behind("embedding");
  for (std::int64_t i = 1; i <= layers; ++i) {
    const std::string name = fmt::format("lstm_{}", i);
    Call& layer = add("lstm", name, {{"units", hidden}});
    layer.set_initializer("init", weights);
    layer.set_initializer("bias-init", options.initializer("bias-init").value_or(Initializer{}));
    drop_behind(name);
  }
  if (tied) {
    add("head", "head", {{"table", "embedding"}});
  } else {
    add("dense", "head", {{"units", shape.outputs}}).set_initializer("init", weights);
  }
  return std::make_unique<Network>(network, shape,
                                   fmt::format("lstm {}x{} vocabulary {} context {}{}", layers, hidden, shape.outputs,
                                               shape.features, tied ? " tied" : ""));
}

}  // namespace

extern const NetworkKind lstm_network;
const NetworkKind lstm_network{
    .name = "lstm",
    .summary = "recurrent language model: --layers of --hidden, over --unroll steps",
    .reads = Reads::tokens,
    .recurrent = true,
    .options = {{.name = "hidden", .value = Numbers{200}, .value_name = "WIDTHS", .help = "one width", .at_least = 1},
                {.name = "layers", .value = 2, .value_name = "N", .help = "recurrent layers", .at_least = 1},
                {.name = "unroll",
                 .value = 20,
                 .value_name = "TOKENS",
                 .help = "steps between updates; the state goes on beyond them",
                 .at_least = 1},
                dropout_option(),
                tied_option(false),
                weight_init_option(),
                bias_init_option()},
    .window = "unroll",
    .training_defaults =
        {{"optimizer", "sgd"}, {"learning-rate", "1"}, {"clip-norm", "5"}, {"batch", "20"}, {"evaluation-batch", "20"}},
    .make = make};

}  // namespace lockstep::model
