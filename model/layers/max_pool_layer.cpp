#include "model/layers/max_pool_layer.hpp"

#include <fmt/format.h>

#include "model/layers/convolution_layer.hpp"

namespace lockstep::model {

MaxPoolLayer::MaxPoolLayer(ParameterTable&, ActivationTable& activations, std::string name, const ImageShape& in,
                           const Sliding& window)
    : Layer(activations, name, 1, slide(in, window, in.channels).elements()),
      name_(std::move(name)),
      shape_{.in = in, .out = slide(in, window, in.channels), .window = window},
      chosen_(activations.add({.name = "", .columns = shape_.out.elements(), .holds = Holds::choices})) {}

LayerPlan MaxPoolLayer::plan(const ParameterTable&) const {
  return {.name = name_,
          .description = fmt::format("{} -> {}, maximum of {}x{}/{}", describe(shape_.in), describe(shape_.out),
                                     shape_.window.height, shape_.window.width, shape_.window.stride),
          .activation_elements = shape_.out.elements()};
}

Tensor MaxPoolLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  pass.images().max_pool_forward(shape_, x, y, pass.at(chosen_));
  return y;
}

void MaxPoolLayer::backward(const Pass& pass, const Tensor&, const Tensor& d_y, Accumulate, const Tensor& d_x) const {
  pass.images().max_pool_backward(shape_, pass.at(chosen_), d_y, d_x);
}

}  // namespace lockstep::model
