/// \file
/// The GPU's passes of sequence_operations.hpp that are no matrix multiplications: each function enqueues its kernels
/// on `stream` and returns; an empty tensor launches nothing. Tensors are device memory with shapes and types as
/// checked by SequenceOperations; types are float32 or bfloat16, arithmetic is fp32. Every sum has a fixed order that
/// depends on the sizes alone, and the embedding's on the tokens: no atomics, so a call repeats bit for bit.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// The device memory of a tensor whose type has been checked.
template <class T>
T* data_of(const Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

void to_time_major(cudaStream_t stream, const Tensor& tokens, const Tensor& out);
void to_tokens(cudaStream_t stream, const Tensor& samples, const TokenRange& range, const Tensor& tokens);

void places_in_documents(cudaStream_t stream, const Tensor& tokens, const Documents& documents, const Tensor& places);
void padded_rows(cudaStream_t stream, const Tensor& lengths, PaddedRows rows, const Tensor& marks);
void carry_rows(cudaStream_t stream, const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y);
void pool_series_forward(cudaStream_t stream, const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                         const Tensor& y);
void pool_series_backward(cudaStream_t stream, const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                          const Tensor& d_y, const Tensor& d_x);

/// A token outside the table gives a row of NaN, and no gradient.
void embedding_forward(cudaStream_t stream, const Tensor& tokens, const Tensor& table, const Tensor& positions,
                       const Tensor& y, const Tensor& places = {});
/// Rows that are sorted by token at a time.
inline constexpr std::int64_t kSortedRows = 32768;
/// Position of a row in the order of (token, row).
struct SortedRow {
  std::int32_t row = 0;
  std::int32_t run = 0;  ///< number of rows of this token, at the first of them; else 0
};
/// Scratch of add_embedding_gradient(): sorted rows, and intermediate tokens and row numbers.
inline constexpr std::size_t kSortBytes = kSortedRows * (sizeof(SortedRow) + 2 * sizeof(std::int32_t));
/// d_table += the rows of d_y, each to the row of its token, in ascending order. Runs of more than 64 rows of one token
/// (within kSortedRows) are added in eight pieces, and then the pieces are added. scratch: kSortBytes.
void add_embedding_gradient(cudaStream_t stream, const Tensor& tokens, const Tensor& d_y, const Tensor& d_table,
                            const Scratch& scratch);

void layer_norm_forward(cudaStream_t stream, const LayerNormForwardOperands& operands);
/// d_x may also be the same tensor as d_y.
void layer_norm_backward(cudaStream_t stream, const LayerNormBackwardOperands& operands, Accumulate accumulate,
                         const Scratch& scratch);

void gelu_forward(cudaStream_t stream, const Tensor& x, const Tensor& bias, const Tensor& y);
void gelu_backward(cudaStream_t stream, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias,
                   const Scratch& scratch);

void dropout(cudaStream_t stream, const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y);

/// One step of Lstm, after the product: gates [sequences, 4 hidden] from sums to gates, and the cells and outputs of
/// the step.
void lstm_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                       const Tensor& hidden);
enum class LastStep : bool { no, yes };
/// gates become the gradients of the sums. d_hidden and `parts`, float32 [kLstmParts * sequences, hidden] or empty:
/// their sum is the gradient of the step's outputs. d_cell: on entry the gradient of its cells from the next step (not
/// read at the last step), on return the gradient of the cells before it.
void lstm_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                        const Tensor& d_hidden, const Tensor& parts, LastStep last, const Tensor& d_cell);
/// One for each gate.
inline constexpr int kLstmParts = 4;

/// One step of Gru, behind its product `products` [sequences, 3 hidden], which has no bias yet.
void gru_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& bias,
                      const Tensor& hidden_before, const Tensor& hidden);
/// gates and products become their gradients; d_before (absent at the first step) += what passes by the gates.
void gru_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& hidden_before,
                       const Tensor& d_hidden, const Tensor& d_before);

/// True if one kernel takes all steps of a recurrent layer with these states: bfloat16, an even number of units, 128 at
/// most. Sums of products stay in float there.
bool takes_whole_layer(const Tensor& hidden);
/// SequenceOperations' operations in that kernel, for at least one sequence and one step.
void gru_layer_forward(cudaStream_t stream, const Gru& shape, const GruForwardOperands& operands);
void gru_layer_backward(cudaStream_t stream, const Gru& shape, const GruBackwardOperands& operands);
void lstm_layer_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands);
void lstm_layer_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands);

inline constexpr std::int64_t kMaxHeadSize = 128;
/// Head sizes up to kMaxHeadSize; std::invalid_argument beyond. bfloat16 with head sizes 64 and 128 runs on tensor
/// cores, all else in plain fp32 arithmetic (in tiles too): a static rule.
void attention_forward(cudaStream_t stream, const Attention& shape, const AttentionForwardOperands& operands);
/// deltas: float32 [samples * heads, context], workspace for the products of each row of y and d_y.
void attention_backward(cudaStream_t stream, const Attention& shape, const AttentionBackwardOperands& operands,
                        const Tensor& deltas);

}  // namespace lockstep::model::cuda
