/// \file
/// "cnn", the network of TensorFlow's CIFAR-10 tutorial: two 5x5 convolutions with overlapping max pools and local
/// response normalisation (Krizhevsky, Sutskever & Hinton 2012), then dense layers of 384 and 192. Only those two are
/// decayed, as there.
#include <utility>

#include <fmt/format.h>

#include "model/layers/convolution_layer.hpp"
#include "model/layers/dense.hpp"
#include "model/layers/layer_chain.hpp"
#include "model/layers/max_pool_layer.hpp"
#include "model/layers/option_check.hpp"
#include "model/layers/response_normalization_layer.hpp"

namespace lockstep::model {

namespace {

class TutorialCnn final : public LayerChain {
 public:
  TutorialCnn(const NetworkOptions& options, const SampleShape& shape)
      : LayerChain(shape), options_(options), image_(require_image("cnn", shape)) {
    convolution("conv_1", 0);
    pool("pool_1");
    append<ResponseNormalizationLayer>("norm_1", image_, ResponseNormalization{});
    convolution("conv_2", 0.1);
    append<ResponseNormalizationLayer>("norm_2", image_, ResponseNormalization{});
    pool("pool_2");
    dense("dense_1", 384, options.activation, 0.04, 0.1, Decay::yes);
    dense("dense_2", 192, options.activation, 0.04, 0.1, Decay::yes);
    dense("dense_3", shape.outputs, Activation::none, 1 / 192.0, 0, Decay::no);
    finish(fmt::format("cnn {}-{} {}", describe(*shape.image), shape.outputs, name_of(options.activation)));
  }

 private:
  Initializer weights(double deviation) const {
    return options_.weight_initializer.value_or(
        Initializer{.scheme = Initializer::Scheme::truncated_normal, .value = deviation});
  }
  Initializer biases(double value) const {
    return options_.bias_initializer.value_or(Initializer{.scheme = Initializer::Scheme::constant, .value = value});
  }

  void convolution(std::string name, double bias) {
    const bool first = features_ == 0;
    image_ = append<ConvolutionLayer>(std::move(name), ConvolutionOptions{.in = image_,
                                                                          .window = same_padding(image_, 5, 1),
                                                                          .channels = 64,
                                                                          .activation = options_.activation,
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
  void dense(std::string name, std::int64_t outputs, Activation activation, double deviation, double bias,
             Decay decay) {
    append<Dense>(std::move(name), DenseOptions{.inputs = features_,
                                                .outputs = outputs,
                                                .activation = activation,
                                                .weight_initializer = weights(deviation),
                                                .bias_initializer = biases(bias),
                                                .decay = decay});
    features_ = outputs;
  }

  NetworkOptions options_;
  ImageShape image_;           ///< what the next layer reads
  std::int64_t features_ = 0;  ///< likewise, as numbers
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  require_known_options(options, {"activation"});
  return std::make_unique<TutorialCnn>(options, shape);
}

/// The tutorial divides the learning rate by 10 every 350 epochs: as --decay-steps depends on the data, it is left to
/// the user.
constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {
    {"augment", "crop=24,flip,brightness=63,contrast=0.2:1.8"},
    {"normalize", "per-image"},
    {"l2", "0.004"},
    {"learning-rate", "0.1"},
    {"schedule", "exponential"},
    {"decay-rate", "0.1"},
    {"staircase", "yes"},
    {"average-decay", "0.9999"},
    {"batch", "128"}};

}  // namespace

extern const NetworkKind cnn_network;
const NetworkKind cnn_network{.name = "cnn",
                              .summary = "the CIFAR-10 tutorial's: two convolutions, pools, response normalisation",
                              .make = make,
                              .defaults = kDefaults};

}  // namespace lockstep::model
