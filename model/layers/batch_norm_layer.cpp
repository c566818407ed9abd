#include "model/layers/batch_norm_layer.hpp"

#include <cassert>

#include <fmt/format.h>

namespace lockstep::model {

BatchNormLayer::BatchNormLayer(ParameterTable& parameters, ActivationTable& activations, std::string name,
                               const BatchNormOptions& options)
    : Layer(activations, name, 1, options.shape.elements()),
      name_(std::move(name)),
      norm_{.channels = options.shape.channels, .relu = options.relu},
      residual_(options.residual),
      synchronize_(options.synchronize) {
  const auto declare = [&](const char* what, double value, Role role, std::optional<std::size_t> with) {
    return parameters.add({.name = name_ + what,
                           .shape = {norm_.channels},
                           .initializer = {Initializer::Scheme::constant, value},
                           .decay = Decay::no,
                           .role = role,
                           .frozen_with = with});
  };
  scale_ = declare("/scale", options.zero_scale ? 0 : 1, Role::weight, {});
  shift_ = declare("/shift", 0, Role::weight, scale_);
  running_mean_ = declare("/running_mean", 0, Role::statistic, scale_);
  running_variance_ = declare("/running_variance", 1, Role::statistic, scale_);
  const auto add = [&](std::int64_t columns, Holds holds) {
    return activations.add({.name = "", .columns = columns, .holds = holds, .per_batch = true});
  };
  mean_ = add(norm_.channels, Holds::statistics);
  inverse_ = add(norm_.channels, Holds::statistics);
  sums_ = add(2 * norm_.channels + 1, Holds::sums);
  backward_sums_ = add(2 * norm_.channels, Holds::sums);
  set_first_weight(scale_);
}

LayerPlan BatchNormLayer::plan(const ParameterTable&) const {
  return {.name = name_,
          .description = fmt::format("{} channels{}", norm_.channels, norm_.relu ? ", relu" : ""),
          .parameters = 2 * norm_.channels,
          .activation_elements = columns()};
}

void BatchNormLayer::sum_over_ranks(const Pass& pass, const Tensor& sums) const {
  if (synchronize_ && pass.sum_over_ranks != nullptr) (*pass.sum_over_ranks)(sums);
}

Tensor BatchNormLayer::forward(const Pass& pass, const Tensor& x, const Tensor& residual) const {
  const Tensor y = output(pass), scale = pass.weight(scale_), shift = pass.weight(shift_);
  assert(residual_ || !residual.present());
  if (!pass.training || pass.table[scale_].frozen) {
    pass.images().batch_norm_inference(norm_, {.x = x,
                                               .mean = pass.weight(running_mean_),
                                               .variance = pass.weight(running_variance_),
                                               .scale = scale,
                                               .shift = shift,
                                               .residual = residual,
                                               .y = y});
    return y;
  }
  const Tensor sums = pass.at(sums_);
  pass.images().batch_norm_sums(norm_, x, sums);
  sum_over_ranks(pass, sums);
  pass.images().batch_norm_forward(norm_, {.x = x,
                                           .sums = sums,
                                           .scale = scale,
                                           .shift = shift,
                                           .residual = residual,
                                           .mean = pass.at(mean_),
                                           .inverse = pass.at(inverse_),
                                           .y = y});
  return y;
}

void BatchNormLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                              const Tensor& d_x) const {
  if (pass.table[scale_].frozen) {
    return pass.images().batch_norm_inference_backward(norm_, {.y = output(pass),
                                                               .d_y = d_y,
                                                               .variance = pass.weight(running_variance_),
                                                               .scale = pass.weight(scale_),
                                                               .d_x = d_x});
  }
  const Tensor mean = pass.at(mean_), inverse = pass.at(inverse_), sums = pass.at(sums_),
               backward_sums = pass.at(backward_sums_);
  pass.images().batch_norm_statistics(norm_, sums, pass.share, accumulate, pass.gradient(running_mean_),
                                      pass.gradient(running_variance_));
  const bool recomputed = norm_.relu && !residual_ && pass.images().recomputes_relu();
  const Tensor scale = pass.weight(scale_), shift = recomputed ? pass.weight(shift_) : Tensor{};
  pass.images().batch_norm_backward_sums(norm_,
                                         {.x = x,
                                          .y = recomputed ? Tensor{} : output(pass),
                                          .d_y = d_y,
                                          .mean = mean,
                                          .inverse = inverse,
                                          .scale = recomputed ? scale : Tensor{},
                                          .shift = shift,
                                          .d_scale = pass.gradient(scale_),
                                          .d_shift = pass.gradient(shift_),
                                          .sums = backward_sums},
                                         accumulate);
  sum_over_ranks(pass, backward_sums);
  pass.images().batch_norm_backward(norm_, {.x = x,
                                            .d_y = d_y,
                                            .mean = mean,
                                            .inverse = inverse,
                                            .scale = scale,
                                            .shift = shift,
                                            .forward_sums = sums,
                                            .sums = backward_sums,
                                            .d_x = d_x});
}

}  // namespace lockstep::model
