/// \file
/// "cnn", the network of TensorFlow's CIFAR-10 tutorial: two 5x5 convolutions with overlapping max pools and local
/// response normalisation (Krizhevsky, Sutskever & Hinton 2012), then dense layers of 384 and 192. Only those two are
/// decayed, as in the tutorial.
#include <utility>

#include <fmt/format.h>

#include "model/layers/convolution_layer.hpp"
#include "model/layers/dense.hpp"
#include "model/layers/dropout_stage.hpp"
#include "model/layers/layer_chain.hpp"
#include "model/layers/max_pool_layer.hpp"
#include "model/layers/response_normalization_layer.hpp"

namespace lockstep::model {

namespace {

class TutorialCnn final : public LayerChain {
 public:
  TutorialCnn(const NetworkOptions& options, const SampleShape& shape)
      : LayerChain(shape),
        activation_(layer_activation(options.get<std::string>("activation"))),
        dropout_(static_cast<float>(options.get<double>("dropout"))),
        weight_initializer_(options.initializer("weight-init")),
        bias_initializer_(options.initializer("bias-init")),
        image_(*shape.image) {
    convolution("conv_1", 0);
    pool("pool_1");
    append<ResponseNormalizationLayer>("norm_1", image_, ResponseNormalization{});
    convolution("conv_2", 0.1);
    append<ResponseNormalizationLayer>("norm_2", image_, ResponseNormalization{});
    pool("pool_2");
    dense("dense_1", 384, activation_, 0.04, 0.1, Decay::yes);
    drop("dropout_1", 0);
    dense("dense_2", 192, activation_, 0.04, 0.1, Decay::yes);
    drop("dropout_2", 1);
    dense("dense_3", shape.outputs, {}, 1 / 192.0, 0, Decay::no);
    finish(fmt::format("cnn {}-{} {}", describe(*shape.image), shape.outputs, name_of(activation_)));
  }

 private:
  Initializer weights(double deviation) const {
    return weight_initializer_.value_or(
        Initializer{.scheme = Initializer::Scheme::truncated_normal, .value = deviation});
  }
  Initializer biases(double value) const {
    return bias_initializer_.value_or(Initializer{.scheme = Initializer::Scheme::constant, .value = value});
  }

  void convolution(std::string name, double bias) {
    const bool first = features_ == 0;
    image_ = append<ConvolutionLayer>(std::move(name), ConvolutionOptions{.in = image_,
                                                                          .window = same_padding(image_, 5, 1),
                                                                          .channels = 64,
                                                                          .activation = activation_,
                                                                          .weight_initializer = weights(0.05),
                                                                          .bias_initializer = biases(bias),
                                                                          .decay = Decay::no,
                                                                          .first = first})
                 .out();
    features_ = image_.elements();
  }
  void pool(std::string name) {
    image_ = append<MaxPoolLayer>(std::move(name), image_, same_padding(image_, 3, 2)).out();
    features_ = image_.elements();
  }
  void drop(std::string name, std::uint32_t index) {
    if (dropout_ == 0) return;
    append<DropoutStage>(std::move(name), features_, Dropout{.rate = dropout_, .stream = kFirstDropoutStream + index});
  }
  void dense(std::string name, std::int64_t outputs, const LayerActivation& activation, double deviation, double bias,
             Decay decay) {
    append<Dense>(std::move(name), DenseOptions{.inputs = features_,
                                                .outputs = outputs,
                                                .activation = activation,
                                                .weight_initializer = weights(deviation),
                                                .bias_initializer = biases(bias),
                                                .decay = decay,
                                                .last = activation.is_none()});
    features_ = outputs;
  }

  LayerActivation activation_;
  float dropout_;  ///< rate behind each dense layer but the last
  std::optional<Initializer> weight_initializer_, bias_initializer_;
  ImageShape image_;           ///< input of the next layer
  std::int64_t features_ = 0;  ///< its number of elements
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<TutorialCnn>(options, shape);
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
