/// \file
/// The output layer of a language model, from vectors to one logit per token of the vocabulary: tied, x E' with the
/// embedding's table E (Press & Wolf 2017), or a dense layer of its own.
///
/// Rows of 50,257 logits of bfloat16 begin at odd multiples of 2 bytes, where tensor cores cannot be fed. So tied
/// logits have padded_columns() columns in bfloat16, and E is read with as many rows: zeros of its padding in the
/// arena. The loss leaves these columns out and makes their gradient zero, so what is added to E's padding is zero,
/// too.
#pragma once

#include <optional>
#include <string>

#include "model/layers/dense.hpp"
#include "model/layers/layer.hpp"

namespace lockstep::model {

struct TokenHeadOptions {
  std::int64_t context = 0, vocabulary = 0, width = 0;
  std::optional<std::size_t> table;  ///< the parameter [vocabulary, width] that is shared; empty: a layer of its own
  Initializer initializer = {};      ///< of the layer of its own
};

class TokenHead {
 public:
  /// Declares NAME/weight [width, vocabulary] and NAME/bias [vocabulary], or nothing. Throws std::invalid_argument
  /// where the table was not made to be shared.
  TokenHead(ParameterTable& parameters, ActivationTable& activations, std::string name,
            const TokenHeadOptions& options);

  LayerPlan plan(const ParameterTable& table) const;
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// Writes the gradient of a shared table as if it were its own: the embedding adds to it later.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const;
  std::size_t gradients_end(const ParameterTable& table) const { return own_ ? own_->gradients_end(table) : 0; }
  /// A shared table is trained below, or nothing of it is trained here.
  bool trains_below(const ParameterTable& table) const { return !own_ || own_->trains_below(table); }

 private:
  std::string name_;
  TokenHeadOptions options_;
  std::optional<Dense> own_;
  std::size_t logits_ = 0;
};

}  // namespace lockstep::model
