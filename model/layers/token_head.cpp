#include "model/layers/token_head.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "model/product_padding.hpp"

namespace lockstep::model {

TokenHead::TokenHead(ParameterTable& parameters, ActivationTable& activations, std::string name,
                     const TokenHeadOptions& options)
    : name_(std::move(name)), options_(options) {
  if (options.table) {
    const std::int64_t more = padded_columns(options.vocabulary) - options.vocabulary;
    if (parameters[*options.table].padding < more * options.width) {
      throw std::invalid_argument(fmt::format("{}: the embedding's table was not made to be shared", name_));
    }
    logits_ = activations.add({.name = name_,
                               .rows = options.context,
                               .columns = options.vocabulary,
                               .padded_columns = padded_columns(options.vocabulary)});
  } else {
    own_.emplace(parameters, activations, name_,
                 DenseOptions{.rows = options.context,
                              .inputs = options.width,
                              .outputs = options.vocabulary,
                              .weight_initializer = options.initializer,
                              .last = true});
  }
}

LayerPlan TokenHead::plan(const ParameterTable& table) const {
  if (own_) return own_->plan(table);
  const double product = 2.0 * static_cast<double>(options_.context) * static_cast<double>(options_.width) *
                         static_cast<double>(options_.vocabulary);
  return {.name = name_,
          .description = fmt::format("{} -> {}, the embedding's table", options_.width, options_.vocabulary),
          .activation_elements = options_.context * options_.vocabulary,
          .forward_flops = product,
          .backward_flops = (table[*options_.table].frozen ? 1 : 2) * product,
          .products = {
              {.rows = options_.context, .inputs = options_.width, .outputs = padded_columns(options_.vocabulary)}}};
}

Tensor TokenHead::forward(const Pass& pass, const Tensor& x) const {
  if (own_) return own_->forward(pass, x);
  const Tensor y = pass.at(logits_);
  pass.sequences().project_forward(x, pass.weight(*options_.table, y.columns), y);
  return y;
}

void TokenHead::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                         const Tensor& d_x) const {
  if (own_) return own_->backward(pass, x, d_y, accumulate, d_x);
  pass.sequences().project_backward(x, pass.weight(*options_.table, d_y.columns), d_y, accumulate,
                                    pass.gradient(*options_.table, d_y.columns), d_x);
}

}  // namespace lockstep::model
