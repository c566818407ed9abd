/// \file
/// GPU kernels of sequence_operations.hpp, except matrix multiplications. Each function enqueues its kernels on
/// `stream` and returns; an empty tensor launches nothing. Tensors are in device memory, and SequenceOperations has
/// checked their shapes and types. Types are float32 or bfloat16, arithmetic is fp32. Every sum has a fixed order that
/// depends on the sizes (for embeddings also on the tokens) alone, without atomics, so results are deterministic.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cuda {

/// Returns the device memory of a tensor whose type has been checked.
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

/// A token outside the table gives a row of NaN and no gradient.
void embedding_forward(cudaStream_t stream, const Tensor& tokens, const Tensor& table, const Tensor& positions,
                       const Tensor& y, const Tensor& places = {});
/// Number of rows that are sorted by token at a time.
inline constexpr std::int64_t kSortedRows = 32768;
/// A row in the order of (token, row).
struct SortedRow {
  std::int32_t row = 0;
  std::int32_t run = 0;  ///< at the first row of a token: its number of rows; else 0
};
/// Bytes of scratch of add_embedding_gradient(): sorted rows, and intermediate tokens and row numbers.
inline constexpr std::size_t kSortBytes = kSortedRows * (sizeof(SortedRow) + 2 * sizeof(std::int32_t));
/// Adds each row of d_y to the row of its token in d_table, in ascending order. More than 64 rows of one token (within
/// kSortedRows) are added in eight parts, whose sums are then added. scratch: kSortBytes.
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

/// One step of Lstm, after the product: turns the sums in gates [sequences, 4 hidden] into gates, and computes the
/// cells and outputs of the step.
void lstm_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                       const Tensor& hidden);
enum class LastStep : bool { no, yes };
/// gates become the gradients of the sums. The gradient of the step's outputs is the sum of d_hidden and of `parts`,
/// float32 [kLstmParts * sequences, hidden] or absent. d_cell: on entry the gradient of the cells from the next step
/// (not read at the last step), on return the gradient of the cells before the step.
void lstm_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                        const Tensor& d_hidden, const Tensor& parts, LastStep last, const Tensor& d_cell);
/// Number of parts: one per gate.
inline constexpr int kLstmParts = 4;

/// One step of Gru, after its product. products: [sequences, 3 hidden], without bias.
void gru_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& bias,
                      const Tensor& hidden_before, const Tensor& hidden);
/// gates and products become their gradients. d_before (absent at the first step) += the gradient of the previous
/// state, without the part through the products.
void gru_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& hidden_before,
                       const Tensor& d_hidden, const Tensor& d_before);

/// True if one kernel can run all steps of a recurrent layer with these states: bfloat16, and an even number of units
/// up to 128. Sums of products are then not rounded.
bool takes_whole_layer(const Tensor& hidden);
/// Operations of SequenceOperations in such a kernel, for at least one sequence and one step.
void gru_layer_forward(cudaStream_t stream, const Gru& shape, const GruForwardOperands& operands);
void gru_layer_backward(cudaStream_t stream, const Gru& shape, const GruBackwardOperands& operands);
void lstm_layer_forward(cudaStream_t stream, const Lstm& shape, const LstmForwardOperands& operands);
void lstm_layer_backward(cudaStream_t stream, const Lstm& shape, const LstmBackwardOperands& operands);

inline constexpr std::int64_t kMaxHeadSize = 128;
/// Throws std::invalid_argument for head sizes above kMaxHeadSize. Causal attention in bfloat16 with head size 64 or
/// 128, without an AttentionMask and with aligned tensors, runs on tensor cores; everything else runs in fp32
/// arithmetic.
void attention_forward(cudaStream_t stream, const Attention& shape, const AttentionForwardOperands& operands);
/// deltas: float32 [samples * heads, context], workspace for the dot products of the rows of y and d_y.
void attention_backward(cudaStream_t stream, const Attention& shape, const AttentionBackwardOperands& operands,
                        const Tensor& deltas);

}  // namespace lockstep::model::cuda
