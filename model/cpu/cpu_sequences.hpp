/// \file
/// Sequences on the CPU: fp32, matrix products through gemm(), everything else in our own vectorised loops.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

class CpuSequences final : public SequenceOperations {
 public:
  /// The pool must outlive it. Room for intermediate results grows with the first call of each shape.
  explicit CpuSequences(ThreadPool& threads) : SequenceOperations(OperationTypes{}), threads_(threads) {}

 private:
  void do_to_time_major(const Tensor& tokens, const Tensor& out) override;
  void do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                            const Tensor& y) override;
  void do_embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate, const Tensor& d_table,
                             const Tensor& d_positions) override;
  void do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void do_project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                           const Tensor& d_table, const Tensor& d_x) override;
  void do_layer_norm_forward(const Tensor& x, const Tensor& residual, const Tensor& scale, const Tensor& shift,
                             const Tensor& sum, const Tensor& mean, const Tensor& inverse, const Tensor& y) override;
  void do_layer_norm_backward(const Tensor& x, const Tensor& scale, const Tensor& mean, const Tensor& inverse,
                              const Tensor& d_y, const Tensor& d_residual, Accumulate accumulate, const Tensor& d_scale,
                              const Tensor& d_shift, const Tensor& d_x) override;
  void do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) override;
  void do_gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias) override;
  void do_dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) override;
  void do_attention_forward(const Attention& shape, const Tensor& joint, const Tensor& keys, const Tensor& y,
                            const Tensor& log_sums) override;
  void do_attention_backward(const Attention& shape, const Tensor& joint, const Tensor& keys, const Tensor& y,
                             const Tensor& log_sums, const Tensor& d_y, const Tensor& d_joint) override;
  void do_lstm_forward(const Lstm& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& cells,
                       const Tensor& hidden) override;
  void do_lstm_backward(const Lstm& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& cells,
                        const Tensor& hidden, const Tensor& d_hidden, const Tensor& d_cell, Accumulate accumulate,
                        const Tensor& d_recurrent) override;

  /// That many floats, until the next call.
  std::span<float> room(std::size_t elements);

  ThreadPool& threads_;
  std::vector<float> room_;
};

}  // namespace lockstep::model::cpu
