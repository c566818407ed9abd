/// \file
/// The reference for operations on sequences: float64, one obvious loop each.
#pragma once

#include "model/sequence_operations.hpp"

namespace lockstep::model {

class ReferenceSequences final : public SequenceOperations {
 public:
  ReferenceSequences() : SequenceOperations({ElementType::float64, ElementType::float64}) {}

 private:
  void do_to_time_major(const Tensor& tokens, const Tensor& out) override;
  void do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                            const Tensor& y) override;
  void do_embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate, const Tensor& d_table,
                             const Tensor& d_positions) override;
  void do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void do_project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                           const Tensor& d_table, const Tensor& d_x) override;
  void do_layer_norm_forward(const LayerNormForwardOperands& operands) override;
  void do_layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate) override;
  void do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) override;
  void do_gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias) override;
  void do_dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) override;
  void do_attention_forward(const Attention& shape, const AttentionForwardOperands& operands) override;
  void do_attention_backward(const Attention& shape, const AttentionBackwardOperands& operands) override;
  void do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) override;
  void do_lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) override;
};

}  // namespace lockstep::model
