#include "model/networks/dense_chain.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t padded(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

Tensor piece(const Tensor& arena, std::int64_t offset, std::int64_t rows, std::int64_t columns) {
  return {static_cast<std::byte*>(arena.data) + static_cast<std::size_t>(offset) * size_of(arena.type), arena.type,
          rows, columns};
}

}  // namespace

DenseChain::DenseChain(std::string name, const std::vector<std::int64_t>& hidden, const NetworkOptions& options,
                       const SampleShape& shape) {
  shape_ = shape;
  if (shape.features <= 0 || shape.outputs <= 0) {
    throw std::invalid_argument(fmt::format("a network needs at least one feature and one output, not {} and {}",
                                            shape.features, shape.outputs));
  }
  std::vector<std::int64_t> widths{shape.features};
  for (const std::int64_t width : hidden) {
    if (width <= 0) throw std::invalid_argument(fmt::format("a hidden layer of width {}: must be positive", width));
    widths.push_back(width);
    widest_hidden_ = std::max(widest_hidden_, width);
  }
  widths.push_back(shape.outputs);

  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    layers_.emplace_back(parameters_, fmt::format("dense_{}", i + 1),
                         DenseOptions{.inputs = widths[i],
                                      .outputs = widths[i + 1],
                                      .activation = last ? Activation::none : options.activation,
                                      .weight_initializer = options.weight_initializer,
                                      .bias_initializer = options.bias_initializer,
                                      .first = i == 0});
  }
  parameters_.freeze();
  signature_ = fmt::format("{} {}", name, fmt::join(widths, "-"));
  if (!hidden.empty()) signature_ += fmt::format(" {}", name_of(options.activation));
}

std::vector<LayerPlan> DenseChain::plan() const {
  std::vector<LayerPlan> lines;
  for (const Dense& layer : layers_) lines.push_back(layer.plan());
  return lines;
}

std::int64_t DenseChain::activation_elements(std::int64_t batch) const {
  std::int64_t elements = 2 * padded(batch * widest_hidden_);
  for (const Dense& layer : layers_) elements += padded(batch * layer.outputs());
  return elements;
}

Tensor DenseChain::output_of(std::size_t layer, const NetworkMemory& memory, std::int64_t batch) const {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < layer; ++i) offset += padded(batch * layers_[i].outputs());
  return piece(memory.activations, offset, batch, layers_[layer].outputs());
}

Tensor DenseChain::gradient_of(std::size_t layer, const NetworkMemory& memory, std::int64_t batch) const {
  std::int64_t offset = layer % 2 == 0 ? 0 : padded(batch * widest_hidden_);
  for (const Dense& each : layers_) offset += padded(batch * each.outputs());
  return piece(memory.activations, offset, batch, layers_[layer].outputs());
}

Tensor DenseChain::forward(Backend& backend, const NetworkMemory& memory, const Tensor& input) const {
  Tensor x = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Tensor y = output_of(i, memory, input.rows);
    layers_[i].forward(backend, parameters_, memory.parameters, x, y);
    x = y;
  }
  return x;
}

void DenseChain::backward(Backend& backend, const NetworkMemory& memory, const Tensor& input, const Tensor& d_output,
                          Accumulate accumulate, const GradientReady& ready) const {
  const std::int64_t batch = input.rows;
  Tensor d_y = d_output;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Tensor x = i == 0 ? input : output_of(i - 1, memory, batch);
    const Tensor d_x = i == 0 ? Tensor{} : gradient_of(i - 1, memory, batch);
    const Tensor y = output_of(i, memory, batch);
    const std::size_t end = layers_[i].backward(backend, parameters_, memory, x, y, d_y, accumulate, d_x);
    if (ready) ready(end);
    d_y = d_x;
  }
}

std::string DenseChain::first_not_finite(Backend& backend, const NetworkMemory& memory, std::int64_t batch) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!std::isfinite(sum_of_squares_now(backend, output_of(i, memory, batch)))) return layers_[i].name();
  }
  return "";
}

}  // namespace lockstep::model
