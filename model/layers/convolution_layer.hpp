/// \file
/// The convolutional layer: y = act(x * W + b) over images [height, width, channels], filters [kernel height, kernel
/// width, in channels, out channels].
#pragma once

#include <string>

#include "model/layers/layer.hpp"
#include "model/layers/layer_activation.hpp"

namespace lockstep::model {

struct ConvolutionOptions {
  ImageShape in;
  Sliding window;
  std::int64_t channels = 0;  ///< channels of the output
  LayerActivation activation = {};
  bool bias = true;
  Initializer weight_initializer = {};
  Initializer bias_initializer = {};
  Decay decay = Decay::yes;  ///< decay of the weight; the bias is never decayed
  /// The first layer of a network: the gradient of its input is not needed.
  bool first = false;
};

class ConvolutionLayer final : public Layer {
 public:
  /// Declares NAME/weight and, with a bias, NAME/bias [out channels].
  ConvolutionLayer(ParameterTable& parameters, ActivationTable& activations, std::string name,
                   const ConvolutionOptions& options);

  const ImageShape& out() const noexcept { return shape_.out; }
  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;
  /// True if backward_adding() is available: for layers without an activation, if the device adds in the same pass.
  bool adds_gradient(const Pass& pass) const;
  /// As backward(), but d_x +=.
  void backward_adding(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                       const Tensor& d_x) const;

 private:
  std::string name_;
  ConvolutionOptions options_;
  Convolution shape_;
  std::size_t before_gelu_ = 0;  ///< activation: input of GELU, if there is one
  std::size_t weight_;
  std::size_t bias_ = 0;
};

/// "24x24x3"
std::string describe(const ImageShape& shape);

}  // namespace lockstep::model
