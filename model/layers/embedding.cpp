#include "model/layers/embedding.hpp"

#include <fmt/format.h>

#include "model/product_padding.hpp"

namespace lockstep::model {

Embedding::Embedding(ParameterTable& parameters, ActivationTable& activations, std::string name,
                     const EmbeddingOptions& options)
    : Layer(activations, name, options.context, options.width),
      name_(std::move(name)),
      options_(options),
      tokens_(parameters.add({.name = name_ + "/tokens",
                              .shape = {options.vocabulary, options.width},
                              .initializer = options.initializer,
                              .fan_in = options.vocabulary,
                              .fan_out = options.width,
                              .padding = options.shared
                                             ? (padded_columns(options.vocabulary) - options.vocabulary) * options.width
                                             : 0})) {
  if (options.positions) {
    positions_ = parameters.add({.name = name_ + "/positions",
                                 .shape = {options.context, options.width},
                                 .initializer = options.initializer,
                                 .fan_in = options.context,
                                 .fan_out = options.width});
  }
  set_first_weight(tokens_);
}

LayerPlan Embedding::plan(const ParameterTable&) const {
  return {.name = name_,
          .description =
              fmt::format("{} tokens{} -> {}", options_.vocabulary,
                          options_.positions ? fmt::format(", {} positions", options_.context) : "", options_.width),
          .parameters = (options_.vocabulary + (options_.positions ? options_.context : 0)) * options_.width,
          .activation_elements = options_.context * options_.width};
}

Tensor Embedding::forward(const Pass& pass, const Tensor& tokens) const {
  const Tensor y = output(pass);
  Tensor positions = options_.positions ? pass.weight(positions_) : Tensor{};
  if (options_.positions && pass.positions.count > 0) {
    positions = positions.row_range(pass.positions.first, pass.positions.count);
  }
  pass.sequences().embedding_forward(tokens, pass.weight(tokens_), positions, y);
  return y;
}

void Embedding::backward(const Pass& pass, const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                         const Tensor&) const {
  const Tensor d_table = pass.gradient(tokens_),
               d_positions = options_.positions ? pass.gradient(positions_) : Tensor{};
  if (!d_table.present() && !d_positions.present()) return;
  if (options_.shared && accumulate == Accumulate::no) {
    if (d_positions.present()) pass.backend.fill_zero(d_positions);
    accumulate = Accumulate::yes;
  }
  pass.sequences().embedding_backward(tokens, d_y, accumulate, d_table, d_positions);
}

}  // namespace lockstep::model
