/// \file
/// The output layer of a language model, from vectors to one logit per token of the vocabulary: tied, x E' with the
/// embedding's table E (Press & Wolf 2017), or a dense layer of its own.
///
/// Rows of 50,257 logits of bfloat16 begin at odd multiples of 2 bytes, where tensor cores cannot be fed. So tied
/// logits have padded_columns() columns in bfloat16, and E is read with as many rows: its padding in the arena, which
/// is zero. The loss ignores these columns and makes their gradient zero, so E's padding stays zero.
#pragma once

#include <optional>
#include <string>

#include "model/layers/dense.hpp"
#include "model/layers/layer.hpp"

namespace lockstep::model {

struct TokenHeadOptions {
  std::int64_t context = 0, vocabulary = 0, width = 0;
  std::optional<std::size_t> table;  ///< the shared parameter [vocabulary, width]; empty: a dense layer
  Initializer initializer = {};      ///< initializer of the dense layer's weight
};

class TokenHead {
 public:
  /// Declares NAME/weight [width, vocabulary] and NAME/bias [vocabulary], or nothing with a shared table. Throws
  /// std::invalid_argument if the table was not declared as shared.
  TokenHead(ParameterTable& parameters, ActivationTable& activations, std::string name,
            const TokenHeadOptions& options);

  LayerPlan plan(const ParameterTable& table) const;
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// Writes the gradient of a shared table as if it owned the table: the embedding adds to it later.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const;
  std::size_t gradients_end(const ParameterTable& table) const { return own_ ? own_->gradients_end(table) : 0; }
  /// True for a shared table: the embedding below trains it, too.
  bool trains_below(const ParameterTable& table) const { return !own_ || own_->trains_below(table); }

 private:
  std::string name_;
  TokenHeadOptions options_;
  std::optional<Dense> own_;
  std::size_t logits_ = 0;
};

}  // namespace lockstep::model
