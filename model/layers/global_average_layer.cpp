#include "model/layers/global_average_layer.hpp"

#include <fmt/format.h>

#include "model/layers/convolution_layer.hpp"

namespace lockstep::model {

GlobalAverageLayer::GlobalAverageLayer(ParameterTable&, ActivationTable& activations, std::string name,
                                       const ImageShape& in)
    : Layer(activations, name, 1, in.channels), name_(std::move(name)), in_(in) {}

LayerPlan GlobalAverageLayer::plan(const ParameterTable&) const {
  return {.name = name_,
          .description = fmt::format("{} -> {}", describe(in_), in_.channels),
          .activation_elements = in_.channels};
}

Tensor GlobalAverageLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  pass.images().global_average_forward(in_, x, y);
  return y;
}

void GlobalAverageLayer::backward(const Pass& pass, const Tensor&, const Tensor& d_y, Accumulate,
                                  const Tensor& d_x) const {
  pass.images().global_average_backward(in_, d_y, d_x);
}

}  // namespace lockstep::model
