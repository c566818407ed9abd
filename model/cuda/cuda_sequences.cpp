#include "model/cuda/cuda_sequences.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "model/cuda/handles.hpp"
#include "model/cuda/kernels/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Returns the same elements in `rows` rows; rows must be at least 1.
Tensor in_rows(const Tensor& tensor, std::int64_t rows) { return tensor.reshaped(rows, tensor.count() / rows); }

/// True if a step's backward product is computed in parts, one per gate, which the next pass adds. The product has a
/// quarter of the columns of the forward product and four times the terms, so whole sums would leave most of a GPU
/// idle. Sums split over blocks would need another kernel in a chain of dependent kernels. With many sequences there
/// are enough sums, and parts would take too many bytes.
bool adds_parts(const OperationTypes& types, const Lstm& shape) {
  constexpr std::int64_t kMaxSequences = 128;
  return types.compute == ElementType::bfloat16 && shape.sequences <= kMaxSequences;
}

}  // namespace

std::string CudaSequences::description() const {
  return fmt::format("attention by {}", attention_ == nullptr ? "our own kernels" : attention_->description());
}

void CudaSequences::fill_zero(const Tensor& x) {
  if (x.count() > 0) check(cudaMemsetAsync(x.data, 0, x.bytes(), tools_.stream), "clearing memory");
}

Tensor CudaSequences::workspace(Blocks& blocks, std::int64_t rows, std::int64_t columns) {
  const auto bytes = static_cast<std::size_t>(rows * columns) * sizeof(float);
  if (blocks.empty() || blocks.back().bytes() < bytes) blocks.emplace_back(tools_.memory, bytes);
  return {blocks.back().data(), ElementType::float32, rows, columns};
}

Tensor CudaSequences::compute_workspace(Blocks& blocks, std::int64_t rows, std::int64_t columns) {
  const Tensor room = workspace(blocks, rows, columns);
  return {room.data, types().compute, rows, columns};
}

Tensor CudaSequences::before_step(Blocks& blocks, const Tensor& states, const Tensor& places, cudaStream_t stream) {
  if (!places.present()) return states;
  const Tensor before = compute_workspace(blocks, states.rows, states.columns);
  cuda::carry_rows(stream, states, places, Accumulate::no, before);
  return before;
}

void CudaSequences::do_to_time_major(const Tensor& tokens, const Tensor& out) {
  cuda::to_time_major(tools_.stream, tokens, out);
}

void CudaSequences::do_to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens) {
  cuda::to_tokens(tools_.stream, samples, range, tokens);
}

void CudaSequences::do_places_in_documents(const Tensor& tokens, const Documents& documents, const Tensor& places) {
  cuda::places_in_documents(tools_.stream, tokens, documents, places);
}

void CudaSequences::do_padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks) {
  cuda::padded_rows(tools_.stream, lengths, rows, marks);
}

void CudaSequences::do_carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y) {
  cuda::carry_rows(tools_.stream, x, places, accumulate, y);
}

void CudaSequences::do_pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                           const Tensor& y) {
  cuda::pool_series_forward(tools_.stream, series, x, lengths, y);
}

void CudaSequences::do_pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                            const Tensor& d_y, const Tensor& d_x) {
  cuda::pool_series_backward(tools_.stream, series, x, lengths, d_y, d_x);
}

void CudaSequences::do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                                         const Tensor& y, const Tensor& places) {
  cuda::embedding_forward(tools_.stream, tokens, table, positions, y, places);
}

void CudaSequences::do_embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                                          const Tensor& d_table, const Tensor& d_positions) {
  if (accumulate == Accumulate::no) fill_zero(d_table);
  if (d_table.present()) cuda::add_embedding_gradient(tools_.stream, tokens, d_y, d_table, tools_.scratch);
  if (d_positions.present()) add_position_gradient(d_y, accumulate, d_positions);
}

/// Treats each whole sample as one long row of a matrix: the gradient is the sum of its columns. A remainder is one
/// more row with fewer positions.
void CudaSequences::add_position_gradient(const Tensor& d_y, Accumulate accumulate, const Tensor& d_positions) {
  const std::int64_t samples = d_y.rows / d_positions.rows, rest = d_y.rows % d_positions.rows;
  const auto add = [&](const Tensor& rows, Accumulate how, const Tensor& to) {
    cuda::activation_gradient(tools_.stream, Activation::none, {}, rows, how, in_rows(to, 1), tools_.scratch);
  };
  if (samples > 0) {
    add(in_rows(d_y.row_range(0, d_y.rows - rest), samples), accumulate, d_positions);
  } else if (accumulate == Accumulate::no) {
    fill_zero(d_positions);
  }
  if (rest > 0) {
    add(in_rows(d_y.row_range(d_y.rows - rest, rest), 1), Accumulate::yes, d_positions.row_range(0, rest));
  }
}

void CudaSequences::do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) {
  if (y.count() == 0) return;
  tools_.matmul.multiply(tools_.stream, {x}, {table, Matmul::Transposed::yes}, Accumulate::no, y);
}

void CudaSequences::do_project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                                        const Tensor& d_table, const Tensor& d_x) {
  if (d_y.count() == 0) {  // no samples: sums are zero
    if (accumulate == Accumulate::no) fill_zero(d_table);
    return;
  }
  if (d_table.present()) {
    tools_.matmul.multiply(tools_.stream, {d_y, Matmul::Transposed::yes}, {x}, accumulate, d_table);
  }
  tools_.matmul.multiply(tools_.stream, {d_y}, {table}, Accumulate::no, d_x);
}

void CudaSequences::do_layer_norm_forward(const LayerNormForwardOperands& operands) {
  cuda::layer_norm_forward(tools_.stream, operands);
}

void CudaSequences::do_layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate) {
  cuda::layer_norm_backward(tools_.stream, operands, accumulate, tools_.scratch);
}

void CudaSequences::do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
  cuda::gelu_forward(tools_.stream, x, bias, y);
}

void CudaSequences::do_gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias) {
  cuda::gelu_backward(tools_.stream, x, d_y, accumulate, d_bias, tools_.scratch);
}

/// Makes one call per pair, because cuBLASLt uses the same kernels for such pairs as for single matrices.
void CudaSequences::do_batched_product(const BatchedProduct& shape, const Tensor& a, const Tensor& b, const Tensor& c) {
  const auto turned = [](bool transposed) { return transposed ? Matmul::Transposed::yes : Matmul::Transposed::no; };
  const auto pair = [&](const Tensor& of, std::int64_t i) {
    return of.row_range(i * (of.rows / shape.count), of.rows / shape.count);
  };
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const Tensor left = pair(a, i), right = pair(b, i);
    tools_.matmul.multiply(tools_.stream, {left, turned(shape.a_transposed)}, {right, turned(shape.b_transposed)},
                           Accumulate::no, pair(c, i));
  }
}

void CudaSequences::do_dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) {
  if (rule.rate > 0) return cuda::dropout(tools_.stream, x, keys, rule, y);
  if (x.data != y.data && x.count() > 0) cuda::cast(tools_.stream, x, y);
}

void CudaSequences::do_attention_forward(const Attention& shape, const AttentionForwardOperands& operands) {
  const bool by_library = attention_ != nullptr && !operands.mask.present();
  if (by_library && attention_->forward(tools_.stream, shape, operands)) return;
  cuda::attention_forward(tools_.stream, shape, operands);
}

void CudaSequences::do_attention_backward(const Attention& shape, const AttentionBackwardOperands& operands) {
  const auto& [joint, keys, mask, y, log_sums, d_y, d_joint] = operands;
  if (y.count() == 0) return;
  const Tensor products = workspace(deltas_, log_sums.rows, log_sums.columns);
  const bool by_library = attention_ != nullptr && !mask.present();
  if (by_library && attention_->backward(tools_.stream, shape, operands, products)) return;
  cuda::attention_backward(tools_.stream, shape, operands, products);
}

void CudaSequences::do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
  const auto& [gates, recurrent, cells, hidden, places] = operands;
  if (shape.sequences == 0) return;
  if (takes_whole_layer(operands.hidden) && !places.present()) {
    return cuda::lstm_layer_forward(tools_.stream_of(shape.queue), shape, operands);
  }
  const cudaStream_t stream = tools_.stream_of(shape.queue);
  const auto step_of = [&](const Tensor& tensor, std::int64_t step) {
    return tensor.row_range(step * shape.sequences, shape.sequences);
  };
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    const Tensor sums = step_of(gates, step), place = places.present() ? step_of(places, step) : Tensor{};
    const Tensor hidden_before = before_step(hidden_before_, step_of(hidden, step), place, stream);
    const Tensor cells_before = before_step(cells_before_, step_of(cells, step), place, stream);
    tools_.matmul.multiply(stream, {hidden_before}, {recurrent}, Accumulate::yes, sums, Matmul::Sums::whole);
    cuda::lstm_step_forward(stream, sums, cells_before, step_of(cells, step + 1), step_of(hidden, step + 1));
  }
}

void CudaSequences::do_lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) {
  const auto& [gates, recurrent, cells, d_hidden, d_cell, gates_after, places] = operands;
  if (shape.sequences == 0) return;
  if (takes_whole_layer(operands.cells) && !places.present()) {
    return cuda::lstm_layer_backward(tools_.stream_of(shape.queue), shape, operands);
  }
  const cudaStream_t stream = tools_.stream_of(shape.queue);
  const auto step_of = [&](const Tensor& tensor, std::int64_t step) {
    return tensor.row_range(step * shape.sequences, shape.sequences);
  };
  const Tensor room =
      !adds_parts(types(), shape) || places.present()
          ? Tensor{}
          : workspace(lstm_parts_[static_cast<std::size_t>(shape.queue)], kLstmParts * shape.sequences, shape.hidden);
  for (std::int64_t step = shape.steps - 1; step >= 0; --step) {
    const Tensor after = step + 1 < shape.steps ? step_of(gates, step + 1) : gates_after;
    const Tensor reaches = step_of(d_hidden, step);
    const bool in_parts = after.present() && room.present() &&
                          tools_.matmul.multiply_in_parts(stream, after, recurrent, kLstmParts, room);
    if (after.present() && places.present()) {
      const Tensor carried = compute_workspace(carried_, shape.sequences, shape.hidden);
      tools_.matmul.multiply(stream, {after}, {recurrent, Matmul::Transposed::yes}, Accumulate::no, carried);
      cuda::carry_rows(stream, carried, step_of(places, step + 1), Accumulate::yes, reaches);
    } else if (after.present() && !in_parts) {
      tools_.matmul.multiply(stream, {after}, {recurrent, Matmul::Transposed::yes}, Accumulate::yes, reaches);
    }
    const Tensor place = places.present() ? step_of(places, step) : Tensor{};
    const Tensor cells_before = before_step(cells_before_, step_of(cells, step), place, stream);
    cuda::lstm_step_backward(stream, step_of(gates, step), cells_before, step_of(cells, step + 1), reaches,
                             in_parts ? room : Tensor{}, after.present() ? LastStep::no : LastStep::yes, d_cell);
    if (place.present()) cuda::carry_rows(stream, d_cell, place, Accumulate::no, d_cell);
  }
}

void CudaSequences::do_gru_forward(const Gru& shape, const GruForwardOperands& operands) {
  const auto& [gates, recurrent, bias, products, hidden, places] = operands;
  if (shape.sequences == 0) return;
  if (takes_whole_layer(operands.hidden) && !places.present()) {
    return cuda::gru_layer_forward(tools_.stream, shape, operands);
  }
  const auto step_of = [&](const Tensor& tensor, std::int64_t step) {
    return tensor.row_range(step * shape.sequences, shape.sequences);
  };
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    const Tensor place = places.present() ? step_of(places, step) : Tensor{};
    const Tensor before = before_step(hidden_before_, step_of(hidden, step), place, tools_.stream);
    tools_.matmul.multiply(tools_.stream, {before}, {recurrent}, Accumulate::no, step_of(products, step),
                           Matmul::Sums::whole);
    cuda::gru_step_forward(tools_.stream, step_of(gates, step), step_of(products, step), bias, before,
                           step_of(hidden, step + 1));
  }
}

void CudaSequences::do_gru_backward(const Gru& shape, const GruBackwardOperands& operands) {
  const auto& [gates, recurrent, products, hidden, d_hidden, places] = operands;
  if (shape.sequences == 0) return;
  if (takes_whole_layer(operands.hidden) && !places.present()) {
    return cuda::gru_layer_backward(tools_.stream, shape, operands);
  }
  const auto step_of = [&](const Tensor& tensor, std::int64_t step) {
    return tensor.row_range(step * shape.sequences, shape.sequences);
  };
  for (std::int64_t step = shape.steps - 1; step >= 0; --step) {
    const Tensor place = places.present() ? step_of(places, step) : Tensor{};
    const Tensor hidden_before = before_step(hidden_before_, step_of(hidden, step), place, tools_.stream);
    const Tensor d_before = step > 0 ? step_of(d_hidden, step - 1) : Tensor{};
    const bool carries = place.present() && d_before.present();
    const Tensor before = carries ? compute_workspace(carried_, shape.sequences, shape.hidden) : d_before;
    if (carries) fill_zero(before);
    cuda::gru_step_backward(tools_.stream, step_of(gates, step), step_of(products, step), hidden_before,
                            step_of(d_hidden, step), before);
    if (!before.present()) return;
    tools_.matmul.multiply(tools_.stream, {step_of(products, step)}, {recurrent, Matmul::Transposed::yes},
                           Accumulate::yes, before);
    if (carries) cuda::carry_rows(tools_.stream, before, place, Accumulate::yes, d_before);
  }
}

}  // namespace lockstep::model::cuda
