/// \file
/// "gpt", the transformer language model of Radford et al. 2019 (GPT-2): token and position embedding, blocks of
/// attention and feed-forward branches that read the norm of the residual stream, a last norm, and an output layer that
/// shares the embedding's table.
///
/// The norms add up the stream: each branch's output, in place, becomes the stream behind it. So a block keeps two
/// streams, two norms and its branches' activations, and the gradient of the stream is one tensor all the way back.
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/network.hpp"

namespace lockstep::model {

namespace {

constexpr std::int64_t kExpansion = 4;

class Transformer {
 public:
  Transformer(const NetworkOptions& options, const SampleShape& shape)
      : dropout_(options.get<double>("dropout")),
        heads_(options.get<std::int64_t>("heads")),
        width_(options.get<std::int64_t>("width")),
        network_{.input = "tokens", .input_shape = {shape.features}, .input_holds = Holds::tokens, .calls = {}} {
    const auto layers = options.get<std::int64_t>("layers");
    if (width_ % heads_ != 0) {
      throw std::invalid_argument(
          fmt::format("network gpt of width {} and {} heads: the heads must divide the width", width_, heads_));
    }
    const auto weight_initializer = options.initializer("weight-init");
    weights_ = weight_initializer.value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02});
    // Each of 2 * layers branches adds to the stream: this scale keeps the sum's variance at that of one branch.
    residual_weights_ = weight_initializer.value_or(
        Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02 / std::sqrt(2 * static_cast<double>(layers))});
    add("embedding", "embedding", {}, {{"vocabulary", shape.outputs}, {"width", width_}, {"positions", true}})
        .set_initializer("init", weights_);
    drop("embedding/dropout");
    for (std::int64_t i = 1; i <= layers; ++i) block(fmt::format("block_{}", i), shape.features);
    add("layer-norm", "norm");
    if (options.get<bool>("tied")) {
      add("head", "head", {}, {{"table", "embedding"}});
    } else {
      dense("head", shape.outputs, weights_);
    }
  }
  const Description& description() const { return network_; }

 private:
  Call& add(std::string kind, std::string name, std::vector<std::string> from = {},
            decltype(Call::arguments) arguments = {}) {
    network_.calls.push_back(
        {.kind = std::move(kind), .name = std::move(name), .from = std::move(from), .arguments = std::move(arguments)});
    return network_.calls.back();
  }
  void dense(std::string name, std::int64_t units, const Initializer& weights, const std::string& activation = "none") {
    add("dense", std::move(name), {}, {{"units", units}, {"activation", activation}}).set_initializer("init", weights);
  }
  void drop(std::string name) {
    if (dropout_ > 0) add("dropout", std::move(name), {}, {{"rate", dropout_}});
  }
  const std::string& last() const { return network_.calls.back().name; }

  void block(const std::string& name, std::int64_t context) {
    branch(name + "/norm_1", name + "/attention", [&](const std::string& attention) {
      dense(attention + "/joint", 3 * width_, weights_);
      add("attention", attention, {}, {{"heads", heads_}, {"dropout", dropout_}});
      dense(attention + "/output", width_, residual_weights_);
    });
    network_.groups.push_back(
        {name + "/attention", fmt::format("{} heads of {}, context {}", heads_, width_ / heads_, context), false});
    branch(name + "/norm_2", name + "/feed_forward", [&](const std::string& feed_forward) {
      dense(feed_forward + "/expand", kExpansion * width_, weights_, "gelu");
      dense(feed_forward + "/contract", width_, residual_weights_);
    });
  }
  /// The norm of the stream, and what `layers` make of it, added to the stream.
  template <class Layers>
  void branch(const std::string& norm, const std::string& name, const Layers& layers) {
    const std::string stream = last();
    add("layer-norm", norm);
    layers(name);
    drop(name + "/dropout");
    add("add", name + "/sum", {stream, last()});
  }

  double dropout_;
  std::int64_t heads_, width_;
  Initializer weights_, residual_weights_;
  Description network_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<Network>(
      Transformer(options, shape).description(), shape,
      fmt::format("gpt {}x{} heads {} vocabulary {} context {}{}", options.get<std::int64_t>("layers"),
                  options.get<std::int64_t>("width"), options.get<std::int64_t>("heads"), shape.outputs, shape.features,
                  options.get<bool>("tied") ? "" : " untied"));
}

}  // namespace

extern const NetworkKind gpt_network;
const NetworkKind gpt_network{
    .name = "gpt",
    .summary = "transformer language model: --layers of --width with --heads",
    .reads = Reads::tokens,
    .options = {{.name = "layers", .value = 4, .value_name = "N", .help = "blocks", .at_least = 1},
                {.name = "width", .value = 128, .value_name = "N", .help = "of the residual stream", .at_least = 1},
                {.name = "heads", .value = 4, .value_name = "N", .help = "of each attention", .at_least = 1},
                {.name = "context", .value = 64, .value_name = "TOKENS", .help = "tokens of a sample", .at_least = 1},
                dropout_option(),
                tied_option(true),
                weight_init_option()},
    .window = "context",
    .training_defaults = {{"optimizer", "adamw"},
                          {"learning-rate", "0.001"},
                          {"beta2", "0.99"},
                          {"weight-decay", "0.1"},
                          {"clip-norm", "1"},
                          {"schedule", "cosine"},
                          {"warmup-steps", "100"},
                          {"final-learning-rate", "0.0001"},
                          {"batch", "16"},
                          {"evaluation-batch", "32"}},
    .make = make};

}  // namespace lockstep::model
