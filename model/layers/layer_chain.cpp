#include "model/layers/layer_chain.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

LayerChain::LayerChain(const SampleShape& shape) { shape_ = shape; }

void LayerChain::finish(std::string signature) {
  signature_ = std::move(signature);
  parameters_.lay_out();
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
    ActivationSpec gradient{.name = "", .rows = layers_[i]->rows(), .columns = layers_[i]->columns()};
    gradients_.push_back(i < 2 ? activations_.add(std::move(gradient))
                               : activations_.overlay(gradients_[i - 2], std::move(gradient)));
  }
}

std::vector<LayerPlan> LayerChain::plan() const {
  std::vector<LayerPlan> lines;
  for (const auto& layer : layers_) lines.push_back(layer->plan(parameters_));
  return lines;
}

Tensor LayerChain::forward(const Pass& pass) const {
  Tensor x = pass.input;
  for (const auto& layer : layers_) x = layer->forward(pass, x);
  return x;
}

void LayerChain::backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                          const GradientReady& ready) const {
  Tensor d_y = d_output;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Tensor x = i == 0 ? pass.input : layers_[i - 1]->output(pass);
    const bool goes_on = i > 0 && parameters_.trains_below(first_parameters_[i]);
    const Tensor d_x = goes_on ? pass.at(gradients_[i - 1]) : Tensor{};
    layers_[i]->backward(pass, x, d_y, accumulate, d_x);
    if (const std::size_t end = layers_[i]->gradients_end(parameters_); end > 0 && ready) ready(end);
    if (!goes_on) break;
    d_y = d_x;
  }
  if (ready && parameters_.updated_elements() > parameters_.trained_elements()) ready(parameters_.updated_elements());
}

}  // namespace lockstep::model
