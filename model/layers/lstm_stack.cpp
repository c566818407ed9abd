#include "model/layers/lstm_stack.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

Queue queue_of(std::size_t layer) noexcept { return layer % 2 == 0 ? Queue::side_1 : Queue::side_2; }

/// Calls visit(place, chunk) for each chunk of each of `layers` layers, in the order of the wavefront. On a diagonal
/// the later layer comes first: it waits only for a chunk that the diagonal before has enqueued, not also for the next
/// one.
template <class Visit>
void by_diagonals(std::int64_t layers, std::int64_t chunks, const Visit& visit) {
  for (std::int64_t diagonal = 0; diagonal < layers + chunks - 1; ++diagonal) {
    for (std::int64_t place = std::min(layers - 1, diagonal); place >= 0 && diagonal - place < chunks; --place) {
      visit(static_cast<std::size_t>(place), diagonal - place);
    }
  }
}

}  // namespace

LstmStack::LstmStack(ParameterTable& parameters, ActivationTable& activations, ActivationTable& recurrent_state,
                     const LstmStackOptions& options)
    : options_(options) {
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(std::make_unique<LstmLayer>(parameters, activations, recurrent_state,
                                                  fmt::format("lstm_{}", i + 1),
                                                  LstmOptions{.context = options.context,
                                                              .inputs = options.width,
                                                              .hidden = options.width,
                                                              .weight_initializer = options.weight_initializer,
                                                              .bias_initializer = options.bias_initializer}));
    Dropout dropout = options.dropout;
    dropout.stream += static_cast<std::uint32_t>(i);
    dropouts_.emplace_back(dropout);
    if (dropouts_.back().is_used()) {
      dropped_.push_back(activations.add({.name = "", .rows = options.context, .columns = options.width}));
    }
  }
}

std::vector<LayerPlan> LstmStack::plan(const ParameterTable& table) const {
  std::vector<LayerPlan> lines;
  for (const auto& layer : layers_) {
    lines.push_back(layer->plan(table));
    if (layers_.size() > 1 && chunks() > 1) {
      lines.back().side_products = {{.rows = 1, .inputs = options_.width, .outputs = 4 * options_.width}};
    }
  }
  return lines;
}

bool LstmStack::is_wavefront(const Pass& pass) const noexcept {
  return !pass.backend.is_host() && layers_.size() > 1 && chunks() > 1;
}

LstmStack::Steps LstmStack::chunk(std::int64_t index) const noexcept {
  const std::int64_t first = index * kChunkSteps;
  return {first, std::min(kChunkSteps, options_.context - first)};
}

Tensor LstmStack::input_of(std::size_t layer, const Pass& pass) const {
  return dropouts_[layer - 1].acts(pass) ? pass.at(dropped_[layer - 1]) : layers_[layer - 1]->output(pass);
}

void LstmStack::drop_output(std::size_t layer, const Pass& pass, const Steps& steps) const {
  if (!dropouts_[layer].acts(pass)) return;
  dropouts_[layer].apply(pass, LstmLayer::rows_of(steps, pass, layers_[layer]->output(pass)),
                         LstmLayer::rows_of(steps, pass, input_of(layer + 1, pass)), steps.first);
}

void LstmStack::drop_gradient(std::size_t layer, const Pass& pass, const Steps& steps, const Tensor& gradient) const {
  if (!dropouts_[layer].acts(pass)) return;
  const Tensor rows = LstmLayer::rows_of(steps, pass, gradient);
  dropouts_[layer].apply(pass, rows, rows, steps.first);
}

Tensor LstmStack::forward(const Pass& pass, const Tensor& x) const {
  const Steps all{0, options_.context};
  if (is_wavefront(pass)) {
    forward_as_wavefront(pass, x);
    drop_output(layers_.size() - 1, pass, all);
    return output(pass);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->forward(pass, i == 0 ? x : input_of(i, pass));
    drop_output(i, pass, all);
  }
  return output(pass);
}

void LstmStack::forward_as_wavefront(const Pass& pass, const Tensor& x) const {
  Backend& backend = pass.backend;
  for (const auto& layer : layers_) layer->begin_window(pass);
  layers_[0]->input_product(pass, x, {0, options_.context});
  backend.order(Queue::main, queue_of(0));
  by_diagonals(static_cast<std::int64_t>(layers_.size()), chunks(), [&](std::size_t layer, std::int64_t index) {
    const Steps steps = chunk(index);
    const bool has_next = layer + 1 < layers_.size();
    layers_[layer]->recur(pass, steps, queue_of(layer));
    if (has_next || index + 1 == chunks()) backend.order(queue_of(layer), Queue::main);
    if (!has_next) return;
    drop_output(layer, pass, steps);
    layers_[layer + 1]->input_product(pass, input_of(layer + 1, pass), steps);
    backend.order(Queue::main, queue_of(layer + 1));
  });
  for (const auto& layer : layers_) layer->end_window(pass);
}

void LstmStack::backward(const Pass& pass, const Tensor& x, const Tensor& gradient, Accumulate accumulate,
                         const GradientReady& ready) const {
  const std::size_t last = layers_.size() - 1;
  std::size_t lowest = last;
  while (lowest > 0 && layers_[lowest]->trains_below(pass.table)) --lowest;
  drop_gradient(last, pass, {0, options_.context}, gradient);
  if (is_wavefront(pass) && lowest < last) {
    return backward_as_wavefront(pass, x, gradient, accumulate, ready, lowest);
  }
  for (std::size_t layer = last;; --layer) {
    const Tensor d_x = layers_[layer]->trains_below(pass.table) ? gradient : Tensor{};
    layers_[layer]->backward(pass, layer == 0 ? x : input_of(layer, pass), gradient, accumulate, d_x);
    ready(layers_[layer]->gradients_end(pass.table));
    if (layer == lowest) return;
    drop_gradient(layer - 1, pass, {0, options_.context}, gradient);
  }
}

void LstmStack::backward_as_wavefront(const Pass& pass, const Tensor& x, const Tensor& gradient, Accumulate accumulate,
                                      const GradientReady& ready, std::size_t lowest) const {
  Backend& backend = pass.backend;
  const std::size_t last = layers_.size() - 1;
  backend.order(Queue::main, queue_of(last));
  by_diagonals(static_cast<std::int64_t>(layers_.size() - lowest), chunks(),
               [&](std::size_t place, std::int64_t index) {
                 const std::size_t layer = last - place;
                 const Steps steps = chunk(chunks() - 1 - index);
                 const Tensor input = layer == 0 ? x : input_of(layer, pass);
                 const bool has_next = layer > lowest, is_through = index + 1 == chunks();
                 layers_[layer]->recur_backward(pass, gradient, steps, queue_of(layer));
                 if (has_next || is_through) backend.order(queue_of(layer), Queue::main);
                 if (has_next) {
                   layers_[layer]->input_gradient(pass, input, steps, gradient);
                   drop_gradient(layer - 1, pass, steps, gradient);
                   backend.order(Queue::main, queue_of(layer - 1));
                 }
                 if (!is_through) return;
                 const Tensor d_x = !has_next && layers_[layer]->trains_below(pass.table) ? gradient : Tensor{};
                 layers_[layer]->parameter_gradients(pass, input, accumulate, d_x);
                 ready(layers_[layer]->gradients_end(pass.table));
               });
}

}  // namespace lockstep::model
