#include "model/layers/residual_block.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

/// Keeps the variance of gradients in the backward pass (He et al. 2015, equation 14).
Initializer he_normal_by_fan_out(const Sliding& window, std::int64_t channels) {
  const auto fan_out = static_cast<double>(window.height * window.width * channels);
  return {.scheme = Initializer::Scheme::normal, .value = std::sqrt(2 / fan_out)};
}

void add_costs(const LayerPlan& part, LayerPlan& sum) {
  sum.parameters += part.parameters;
  sum.activation_elements += part.activation_elements;
  sum.forward_flops += part.forward_flops;
  sum.backward_flops += part.backward_flops;
  sum.patch_elements = std::max(sum.patch_elements, part.patch_elements);
  sum.products.insert(sum.products.end(), part.products.begin(), part.products.end());
}

}  // namespace

NormalizedConvolution::NormalizedConvolution(ParameterTable& parameters, ActivationTable& activations,
                                             const std::string& name, const Options& options)
    : convolution_(parameters, activations, name,
                   {.in = options.in,
                    .window = options.window,
                    .channels = options.channels,
                    .bias = false,
                    .weight_initializer =
                        options.weight_initializer.value_or(he_normal_by_fan_out(options.window, options.channels)),
                    .first = options.first}),
      norm_(parameters, activations, name + "/norm",
            {.shape = convolution_.out(),
             .relu = options.relu,
             .residual = options.residual,
             .zero_scale = options.zero_scale,
             .synchronize = options.synchronize}) {}

LayerPlan NormalizedConvolution::plan(const ParameterTable& table) const {
  LayerPlan plan = convolution_.plan(table);
  const LayerPlan norm = norm_.plan(table);
  plan.description += ", batch norm";
  add_costs(norm, plan);
  return plan;
}

Tensor NormalizedConvolution::forward(const Pass& pass, const Tensor& x, const Tensor& residual) const {
  return norm_.forward(pass, convolution_.forward(pass, x), residual);
}

void NormalizedConvolution::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, const Tensor& d_middle,
                                     Accumulate accumulate, const Tensor& d_x) const {
  norm_.backward(pass, convolution_.output(pass), d_y, accumulate, d_middle);
  convolution_.backward(pass, x, d_middle, accumulate, d_x);
}

void NormalizedConvolution::backward_adding(const Pass& pass, const Tensor& x, const Tensor& d_y,
                                            const Tensor& d_middle, Accumulate accumulate, const Tensor& d_x) const {
  norm_.backward(pass, convolution_.output(pass), d_y, accumulate, d_middle);
  convolution_.backward_adding(pass, x, d_middle, accumulate, d_x);
}

void GradientWorkspaces::add_to(ActivationTable& activations) {
  for (std::size_t& workspace : workspaces_) workspace = activations.add({.name = "", .columns = elements_});
}

Tensor GradientWorkspaces::at(const Pass& pass, std::size_t workspace, std::int64_t elements) const {
  Tensor tensor = pass.at(workspaces_[workspace]);
  tensor.columns = elements;
  return tensor;
}

ResidualBlock::ResidualBlock(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                             const ResidualOptions& options, GradientWorkspaces& workspaces)
    : name_(name), options_(options) {
  const bool bottleneck = options.expansion > 1;
  const std::int64_t channels = options.channels * options.expansion;
  const bool changes = options.stride != 1 || channels != options.in.channels;
  if (changes && options.shortcut == Shortcut::projection) {
    projection_ = std::make_unique<NormalizedConvolution>(
        parameters, activations, name + "/projection",
        NormalizedConvolution::Options{.in = options.in,
                                       .window = even_padding(1, options.stride, 0),
                                       .channels = channels,
                                       .relu = false,
                                       .synchronize = options.synchronize,
                                       .weight_initializer = options.weight_initializer});
  }
  workspaces.fit(options.in.elements());
  ImageShape in = options.in;
  const int count = bottleneck ? 3 : 2;
  for (int i = 0; i < count; ++i) {
    const bool last = i + 1 == count, wide = !bottleneck || i == 1;
    const std::int64_t stride = i == (bottleneck ? 1 : 0) ? options.stride : 1;
    convolutions_.push_back(std::make_unique<NormalizedConvolution>(
        parameters, activations, fmt::format("{}/conv_{}", name, i + 1),
        NormalizedConvolution::Options{.in = in,
                                       .window = wide ? even_padding(3, stride, 1) : even_padding(1, stride, 0),
                                       .channels = last ? channels : options.channels,
                                       .residual = last,
                                       .zero_scale = last,
                                       .synchronize = options.synchronize,
                                       .weight_initializer = options.weight_initializer}));
    in = convolutions_.back()->out();
    workspaces.fit(in.elements());
  }
  if (changes && options.shortcut == Shortcut::subsample) {
    subsampled_ = activations.add({.name = "", .columns = out().elements()});
  }
}

LayerPlan ResidualBlock::plan(const ParameterTable& table) const {
  LayerPlan sum{.name = name_,
                .description = fmt::format("{} -> {}, {} convolutions", describe(options_.in), describe(out()),
                                           convolutions_.size())};
  if (projection_) sum.description += ", projection";
  for (const auto& convolution : convolutions_) add_costs(convolution->plan(table), sum);
  if (projection_) add_costs(projection_->plan(table), sum);
  // A trained projection is declared earlier, but no trained layer produces its input.
  if (projection_ && !trains_below(table) && convolutions_.front()->trains_below(table)) {
    sum.backward_flops -= convolutions_.front()->plan(table).forward_flops;
  }
  if (subsampled_) sum.activation_elements += out().elements();
  return sum;
}

Tensor ResidualBlock::forward(const Pass& pass, const Tensor& x) const {
  Tensor residual = x;
  if (projection_) residual = projection_->forward(pass, x);
  if (subsampled_) {
    residual = pass.at(*subsampled_);
    pass.images().subsample_forward(options_.in, out(), options_.stride, x, residual);
  }
  Tensor y = x;
  for (const auto& convolution : convolutions_) {
    y = convolution->forward(pass, y, convolution == convolutions_.back() ? residual : Tensor{});
  }
  return y;
}

std::size_t ResidualBlock::backward(const Pass& pass, const GradientWorkspaces& workspaces, const Tensor& x,
                                    std::size_t workspace, Accumulate accumulate) const {
  const auto at = [&](std::size_t index, std::int64_t elements) { return workspaces.at(pass, index, elements); };
  const std::size_t last = convolutions_.size() - 1;
  std::size_t here = workspace, other = (workspace + 1) % 3;
  for (std::size_t i = last + 1; i-- > 0;) {
    const Tensor before = i == 0 ? x : convolutions_[i - 1]->output(pass);
    const std::int64_t elements = convolutions_[i]->out().elements();
    const bool wanted = i == 0 ? trains_below(pass.table) : convolutions_[i]->trains_below(pass.table);
    // The last convolution leaves the shortcut's gradient in `workspace`; the others need not keep anything.
    const std::size_t middle = i == last ? other : here;
    const std::size_t to = i == last ? (workspace + 2) % 3 : other;
    if (i == 0 && wanted && !subsampled_ && convolutions_[i]->adds_gradient(pass)) {
      // The shortcut's gradient is complete: the first convolution adds its own to it.
      const Tensor d_shortcut = at(workspace, out().elements()), d_y = at(here, elements);
      if (!projection_) {
        convolutions_[i]->backward_adding(pass, x, d_y, d_y, accumulate, d_shortcut);
        return workspace;
      }
      projection_->backward(pass, x, d_shortcut, d_shortcut, accumulate, at(to, x.columns));
      convolutions_[i]->backward_adding(pass, x, d_y, d_y, accumulate, at(to, x.columns));
      return to;
    }
    convolutions_[i]->backward(pass, before, at(here, elements), at(middle, elements), accumulate,
                               wanted ? at(to, before.columns) : Tensor{});
    if (!wanted && i > 0) return workspace;
    here = to;
    other = middle;
  }
  const Tensor d_shortcut = at(workspace, out().elements()), d_x = at(here, x.columns);
  if (!trains_below(pass.table)) {
    if (projection_) projection_->backward(pass, x, d_shortcut, d_shortcut, accumulate, {});
    return here;
  }
  if (projection_) {
    const Tensor d_projected = at(other, x.columns);
    projection_->backward(pass, x, d_shortcut, d_shortcut, accumulate, d_projected);
    pass.backend.add(d_projected, d_x);
  } else if (subsampled_) {
    pass.images().subsample_backward(options_.in, out(), options_.stride, d_shortcut, d_x);
  } else {
    pass.backend.add(d_shortcut, d_x);
  }
  return here;
}

std::size_t ResidualBlock::gradients_end(const ParameterTable& table) const {
  return (projection_ ? projection_ : convolutions_.front())->gradients_end(table);
}

bool ResidualBlock::trains_below(const ParameterTable& table) const {
  return (projection_ ? projection_ : convolutions_.front())->trains_below(table);
}

}  // namespace lockstep::model
