/// \file
/// Embeds tokens as vectors: rows of a table [vocabulary, width], plus one row per position if positions are learnt.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

struct EmbeddingOptions {
  std::int64_t context = 0, vocabulary = 0, width = 0;
  bool positions = false;  ///< also learn a vector for each position
  bool shared = false;     ///< the output layer reads the table, too, padded, and goes backward earlier
  Initializer initializer = {};
};

class Embedding final : public Layer {
 public:
  /// Declares NAME/tokens [vocabulary, width] and, with positions, NAME/positions [context, width].
  Embedding(ParameterTable& parameters, ActivationTable& activations, std::string name,
            const EmbeddingOptions& options);

  /// Index of the table's parameter.
  std::size_t table() const noexcept { return tokens_; }
  LayerPlan plan(const ParameterTable& table) const override;
  /// tokens: int32 [rows, 1].
  Tensor forward(const Pass& pass, const Tensor& tokens) const override;
  /// The gradient is added to a shared table, whatever `accumulate` is. d_x: empty.
  void backward(const Pass& pass, const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  EmbeddingOptions options_;
  std::size_t tokens_, positions_ = 0;
};

}  // namespace lockstep::model
