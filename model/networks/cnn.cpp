/// \file
/// "cnn", the network of TensorFlow's CIFAR-10 tutorial: two 5x5 convolutions with overlapping max pools and local
/// response normalisation (Krizhevsky, Sutskever & Hinton 2012), then dense layers of 384 and 192. Only those two are
/// decayed, as in the tutorial.
#include <utility>

#include <fmt/format.h>

#include "model/graph/graph_network.hpp"

namespace lockstep::model {

namespace {

class TutorialCnn {
 public:
  TutorialCnn(const NetworkOptions& options, const SampleShape& shape)
      : options_(options),
        activation_(options.get<std::string>("activation")),
        network_{.input_shape = Shape(*shape.image), .calls = {}} {
    convolution("conv_1", 0);
    pool("pool_1");
    add("response-norm", "norm_1");
    convolution("conv_2", 0.1);
    add("response-norm", "norm_2");
    pool("pool_2");
    add("flatten", "flatten");
    dense("dense_1", {{"units", 384}, {"activation", activation_}}, 0.04, 0.1);
    drop("dropout_1");
    dense("dense_2", {{"units", 192}, {"activation", activation_}}, 0.04, 0.1);
    drop("dropout_2");
    dense("dense_3", {{"units", shape.outputs}, {"decay", false}}, 1 / 192.0, 0);
  }
  const Description& description() const { return network_; }

 private:
  using Arguments = std::map<std::string, OptionValue, std::less<>>;

  Call& add(std::string kind, std::string name, Arguments arguments = {}) {
    network_.calls.push_back({.kind = std::move(kind), .name = std::move(name), .arguments = std::move(arguments)});
    return network_.calls.back();
  }
  void initialize(Call& call, double deviation, double bias) {
    using enum Initializer::Scheme;
    call.set_initializer(
        "init",
        options_.initializer("weight-init").value_or(Initializer{.scheme = truncated_normal, .value = deviation}));
    call.set_initializer("bias-init",
                         options_.initializer("bias-init").value_or(Initializer{.scheme = constant, .value = bias}));
  }
  void convolution(std::string name, double bias) {
    initialize(
        add("conv", std::move(name), {{"channels", 64}, {"kernel", 5}, {"activation", activation_}, {"decay", false}}),
        0.05, bias);
  }
  void pool(std::string name) { add("max-pool", std::move(name), {{"window", 3}, {"stride", 2}}); }
  void dense(std::string name, Arguments arguments, double deviation, double bias) {
    initialize(add("dense", std::move(name), std::move(arguments)), deviation, bias);
  }
  void drop(std::string name) {
    const auto rate = options_.get<double>("dropout");
    if (rate > 0) add("dropout", std::move(name), {{"rate", rate}});
  }

  const NetworkOptions& options_;
  std::string activation_;
  Description network_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<GraphNetwork>(TutorialCnn(options, shape).description(), shape,
                                        fmt::format("cnn {}-{} {}", to_string(Shape(*shape.image)), shape.outputs,
                                                    options.get<std::string>("activation")));
}

}  // namespace

extern const NetworkKind cnn_network;
// The tutorial divides the learning rate by 10 every 350 epochs. --decay-steps depends on the data, so the user sets
// it.
const NetworkKind cnn_network{
    .name = "cnn",
    .summary = "the CIFAR-10 tutorial's: two convolutions, pools, response normalisation",
    .reads = Reads::images,
    .options = {activation_option(), dropout_option(), weight_init_option(), bias_init_option()},
    .training_defaults = {{"augment", "crop=24,flip,brightness=63,contrast=0.2:1.8"},
                          {"normalize", "per-image"},
                          {"optimizer", "sgd"},
                          {"l2", "0.004"},
                          {"learning-rate", "0.1"},
                          {"schedule", "exponential"},
                          {"decay-rate", "0.1"},
                          {"staircase", "yes"},
                          {"average-decay", "0.9999"},
                          {"batch", "128"}},
    .make = make};

}  // namespace lockstep::model
