/// \file
/// Local response normalisation across the channels of a pixel (ResponseNormalization in image_operations.hpp).
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

class ResponseNormalizationLayer final : public Layer {
 public:
  ResponseNormalizationLayer(ParameterTable& parameters, ActivationTable& activations, std::string name,
                             const ImageShape& shape, const ResponseNormalization& norm);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  /// d_x may be d_y's memory.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  ResponseNormalization norm_;
};

}  // namespace lockstep::model
