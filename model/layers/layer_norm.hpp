/// \file
/// Layer normalisation of each position, together with the addition of the preceding branch to the residual stream.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

class LayerNorm final : public Layer {
 public:
  /// Declares NAME/scale and NAME/shift [width], not decayed. rows: per sample.
  LayerNorm(ParameterTable& parameters, ActivationTable& activations, std::string name, std::int64_t rows,
            std::int64_t width);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  /// x becomes x + residual: the stream, and the input of the norm.
  Tensor forward_sum(const Pass& pass, const Tensor& x, const Tensor& residual) const;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;
  /// x: the input of the norm. d_stream: its gradient from behind the norm; the gradient through the norm is added.
  void backward_sum(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                    const Tensor& d_stream) const;

 private:
  std::string name_;
  std::size_t scale_, shift_, mean_, inverse_;
};

}  // namespace lockstep::model
