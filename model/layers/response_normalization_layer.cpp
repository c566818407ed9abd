#include "model/layers/response_normalization_layer.hpp"

#include <fmt/format.h>

namespace lockstep::model {

ResponseNormalizationLayer::ResponseNormalizationLayer(ParameterTable&, ActivationTable& activations, std::string name,
                                                       const ImageShape& shape, const ResponseNormalization& norm)
    : Layer(activations, name, 1, shape.elements()), name_(std::move(name)), norm_(norm) {
  norm_.channels = shape.channels;
}

LayerPlan ResponseNormalizationLayer::plan(const ParameterTable&) const {
  return {.name = name_,
          .description = fmt::format("over {} channels", 2 * norm_.radius + 1),
          .activation_elements = columns()};
}

Tensor ResponseNormalizationLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  pass.images().response_normalization_forward(norm_, x, y);
  return y;
}

void ResponseNormalizationLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate,
                                          const Tensor& d_x) const {
  pass.images().response_normalization_backward(norm_, x, output(pass), d_y, d_x);
}

}  // namespace lockstep::model
