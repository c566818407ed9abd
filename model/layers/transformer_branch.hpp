/// \file
/// The two branches of a transformer's block, which are added to the residual stream. Each reads the stream's norm and
/// ends in a dense layer with dropout on its output; the next norm does the addition (layer_norm.hpp).
#pragma once

#include <string>

#include "model/layers/dense.hpp"
#include "model/layers/dropout_layer.hpp"
#include "model/layers/layer.hpp"

namespace lockstep::model {

struct TransformerOptions {
  std::int64_t context = 0, width = 0, heads = 0;
  float dropout = 0;
  Initializer initializer = {};           ///< initializer of the branches' first matrices
  Initializer residual_initializer = {};  ///< initializer of their last matrices
};

/// Workspace for gradients within a branch, shared by all of them.
struct TransformerWorkspace {
  TransformerWorkspace(ActivationTable& activations, const TransformerOptions& options);
  std::size_t branch, joint, hidden, dropped;
};

/// Causal self-attention in several heads: joint projection to queries, keys and values, attention, projection back.
class AttentionBranch {
 public:
  /// Declares NAME/joint and NAME/output, dense layers. Uses the dropout streams `stream` and `stream` + 1.
  AttentionBranch(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                  const TransformerOptions& options, std::uint32_t stream);

  LayerPlan plan(const ParameterTable& table) const;
  Tensor output(const Pass& pass) const { return output_.output(pass); }
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// d_y stays unchanged; d_x: not d_y's memory, may be the workspace's `branch`.
  void backward(const Pass& pass, const TransformerWorkspace& workspace, const Tensor& x, const Tensor& d_y,
                Accumulate accumulate, const Tensor& d_x) const;
  std::size_t gradients_end(const ParameterTable& table) const { return joint_.gradients_end(table); }
  bool trains_below(const ParameterTable& table) const { return joint_.trains_below(table); }

 private:
  std::string name_;
  Attention shape_;
  Dense joint_;
  std::size_t attended_, log_sums_;
  Dense output_;
  DropoutLayer probabilities_, dropout_;
};

/// A dense layer four times as wide as the stream, GELU, and a dense layer back.
class FeedForwardBranch {
 public:
  /// Declares NAME/expand/weight, NAME/expand/bias and NAME/contract, a dense layer. Uses the dropout stream `stream`.
  FeedForwardBranch(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                    const TransformerOptions& options, std::uint32_t stream);

  LayerPlan plan(const ParameterTable& table) const;
  Tensor output(const Pass& pass) const { return contract_.output(pass); }
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// As AttentionBranch.
  void backward(const Pass& pass, const TransformerWorkspace& workspace, const Tensor& x, const Tensor& d_y,
                Accumulate accumulate, const Tensor& d_x) const;
  std::size_t gradients_end(const ParameterTable& table) const { return table.gradients_end(weight_); }
  bool trains_below(const ParameterTable& table) const { return table.trains_below(weight_); }

 private:
  std::string name_;
  std::int64_t context_, width_;
  std::size_t weight_, bias_, expanded_, active_;
  Dense contract_;
  DropoutLayer dropout_;
};

}  // namespace lockstep::model
