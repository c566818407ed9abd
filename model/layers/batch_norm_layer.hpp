/// \file
/// Batch normalisation per channel, with an optional residual and ReLU behind it.
///
/// Training normalises with the statistics of the batch: this rank's alone, or, synchronised, the batches of all ranks
/// (one sum of 2 channels + 1 numbers forward, one of 2 channels backward). Evaluation normalises with the running
/// statistics, which are slices of Role::statistic: the backward pass writes this batch's mean and unbiased variance,
/// times the batch's share of the step, into the gradients' memory (parameters.hpp). A frozen layer normalises with the
/// running statistics in training, too, and leaves them unchanged.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

struct BatchNormOptions {
  ImageShape shape;
  bool relu = false;         ///< after the addition of the residual
  bool residual = false;     ///< every pass has a residual
  bool zero_scale = false;   ///< the scale starts at 0: last norm of a residual block (Goyal et al. 2017)
  bool synchronize = false;  ///< synchronise over all ranks
};

class BatchNormLayer final : public Layer {
 public:
  /// Declares NAME/scale and NAME/shift (not decayed), NAME/running_mean and NAME/running_variance (statistics), each
  /// [channels].
  BatchNormLayer(ParameterTable& parameters, ActivationTable& activations, std::string name,
                 const BatchNormOptions& options);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override { return forward(pass, x, {}); }
  /// residual: shape of x, or empty without BatchNormOptions::residual.
  Tensor forward(const Pass& pass, const Tensor& x, const Tensor& residual) const;
  /// d_y becomes the gradient of the residual, if there is one. d_x may be d_y's memory if no caller needs that
  /// gradient.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  void sum_over_ranks(const Pass& pass, const Tensor& sums) const;

  std::string name_;
  BatchNorm norm_;
  bool residual_, synchronize_;
  std::size_t scale_, shift_, running_mean_, running_variance_;
  std::size_t mean_, inverse_, sums_, backward_sums_;
};

}  // namespace lockstep::model
