#include "model/sequence_operations.hpp"

#include "model/operation_checks.hpp"

namespace lockstep::model {

namespace {

/// Requires dropout keys that fit a batch with `rows` rows of activations. Keys may be absent if the rate is 0.
void require_dropout(const Dropout& rule, const Tensor& keys, std::int64_t rows, const char* operation) {
  require(rule.rate >= 0 && rule.rate < 1, operation, "the rate must be in [0, 1)");
  require(keys.present() || rule.rate == 0 || rows == 0, operation, "a dropout needs a key for each sample");
  require(absent_or(keys, ElementType::uint64, keys.rows, 1), operation, "keys must be uint64 [samples, 1]");
}

void require_shape(const Attention& shape, const Tensor& joint, const Tensor& keys, const AttentionMask& mask,
                   ElementType type, const char* operation) {
  require(shape.context > 0 && shape.heads > 0 && shape.head_size > 0, operation,
          "context, heads and head size must be positive");
  require(is(joint, type, joint.rows, 3 * shape.width()), operation,
          "joint must be [rows, 3 * heads * head size] in the compute type");
  require(joint.rows % shape.context == 0, operation, "rows must be whole samples of `context` positions");
  require_dropout(shape.dropout, keys, joint.rows, operation);
  require(!keys.present() || keys.rows == joint.rows / shape.context, operation, "keys must be uint64 [samples, 1]");
  require(absent_or(mask.places, ElementType::int32, joint.rows, 1), operation, "places must be int32 [rows, 1]");
  require(!mask.places.present() || shape.causal, operation, "places in documents are for causal attention");
  require(absent_or(mask.lengths, ElementType::int32, joint.rows / shape.context, 1), operation,
          "lengths must be int32 [samples, 1]");
}

void require_shape(const Lstm& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& cells,
                   ElementType type, const char* operation) {
  require(shape.steps > 0 && shape.sequences >= 0 && shape.hidden > 0, operation,
          "steps and hidden must be positive, sequences not negative");
  require(is(gates, type, shape.steps * shape.sequences, 4 * shape.hidden), operation,
          "gates must be [steps * sequences, 4 * hidden] in the compute type");
  require(is(recurrent, type, shape.hidden, 4 * shape.hidden), operation,
          "recurrent must be [hidden, 4 * hidden] in the compute type");
  require(is(cells, type, (shape.steps + 1) * shape.sequences, shape.hidden), operation,
          "cells must be [(steps + 1) * sequences, hidden] in the compute type");
  require(apart(gates, cells), operation, "gates and cells must have memory of their own");
}

void require_places(const Tensor& places, std::int64_t rows, const char* operation) {
  require(absent_or(places, ElementType::int32, rows, 1), operation, "places must be int32 [steps * sequences, 1]");
}

void require_shape(const Gru& shape, const Tensor& gates, const Tensor& recurrent, const Tensor& products,
                   const Tensor& hidden, ElementType type, const char* operation) {
  require(shape.steps > 0 && shape.sequences >= 0 && shape.hidden > 0, operation,
          "steps and hidden must be positive, sequences not negative");
  require(is(gates, type, shape.steps * shape.sequences, 3 * shape.hidden) &&
              is(products, type, shape.steps * shape.sequences, 3 * shape.hidden),
          operation, "gates and products must be [steps * sequences, 3 * hidden] in the compute type");
  require(is(recurrent, type, shape.hidden, 3 * shape.hidden), operation,
          "recurrent must be [hidden, 3 * hidden] in the compute type");
  require(is(hidden, type, (shape.steps + 1) * shape.sequences, shape.hidden), operation,
          "hidden must be [(steps + 1) * sequences, hidden] in the compute type");
  require(apart(gates, products) && apart(gates, hidden) && apart(products, hidden), operation,
          "gates, products and hidden must have memory of their own");
}

}  // namespace

void SequenceOperations::to_time_major(const Tensor& tokens, const Tensor& out) {
  require(is(tokens, ElementType::int32, tokens.rows, tokens.columns), "to_time_major",
          "tokens must be int32 [samples, positions]");
  require(is(out, ElementType::int32, tokens.count(), 1), "to_time_major",
          "out must be int32 [positions * samples, 1]");
  require(apart(tokens, out), "to_time_major", "out must have memory of its own");
  do_to_time_major(tokens, out);
}

void SequenceOperations::to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens) {
  const char* const operation = "to_tokens";
  require(samples.type == ElementType::uint8 || samples.type == ElementType::float32 ||
              samples.type == ElementType::float64,
          operation, "samples must be uint8, float32 or float64");
  require(is(samples, samples.type, samples.rows, samples.columns), operation, "samples must be [samples, numbers]");
  require(range.first >= 0 && range.count > 0 && range.first + range.count <= samples.columns && range.vocabulary > 0,
          operation, "the range must lie within a sample, and a vocabulary must have tokens");
  require(is(tokens, ElementType::int32, samples.rows, range.count), operation,
          "tokens must be int32 [samples, numbers of the range]");
  do_to_tokens(samples, range, tokens);
}

void SequenceOperations::places_in_documents(const Tensor& tokens, const Documents& documents, const Tensor& places) {
  const char* const operation = "places_in_documents";
  require(is(tokens, ElementType::int32, tokens.rows, tokens.columns), operation,
          "tokens must be int32 [samples, positions]");
  require(documents.first >= 0 && (documents.first == 0 || tokens.rows == 1), operation,
          "only positions of one sample can be left out");
  require(documents.first == 0 || documents.order == RowOrder::sample_major, operation,
          "only positions of sample-major rows can be left out");
  require(is(places, ElementType::int32, tokens.rows, documents.first + tokens.columns), operation,
          "places must be int32 [samples, positions]");
  require(apart(tokens, places), operation, "places must have memory of their own");
  do_places_in_documents(tokens, documents, places);
}

void SequenceOperations::padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks) {
  const char* const operation = "padded_rows";
  require(is(lengths, ElementType::int32, lengths.rows, 1), operation, "lengths must be int32 [samples, 1]");
  require(is(marks, ElementType::int32, marks.rows, 1) &&
              (lengths.rows == 0 ? marks.rows == 0 : marks.rows % lengths.rows == 0),
          operation, "marks must be int32 [samples * steps, 1]");
  require(apart(lengths, marks), operation, "marks must have memory of their own");
  do_padded_rows(lengths, rows, marks);
}

void SequenceOperations::carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y) {
  const char* const operation = "carry_rows";
  require(is(x, types_.compute, x.rows, x.columns), operation, "x must be [rows, columns] in the compute type");
  require(is(places, ElementType::int32, x.rows, 1), operation, "places must be int32 [rows, 1]");
  require(is(y, types_.compute, x.rows, x.columns), operation, "y must have the shape of x");
  require(accumulate == Accumulate::no ? same_or_apart(x, y) : apart(x, y), operation,
          "y must have memory of its own, or all of that of x");
  do_carry_rows(x, places, accumulate, y);
}

namespace {

void require_series(const PaddedSeries& series, const Tensor& x, const Tensor& lengths, const Tensor& y,
                    ElementType type, const char* operation) {
  require(series.steps > 0, operation, "steps must be positive");
  require(is(lengths, ElementType::int32, lengths.rows, 1), operation, "lengths must be int32 [samples, 1]");
  require(is(y, type, lengths.rows, y.columns), operation, "a row of each sample must be in the compute type");
  require(is(x, type, lengths.rows * series.steps, y.columns), operation,
          "the series must be [samples * steps, columns] in the compute type");
  require(apart(x, y), operation, "operands must have memory of their own");
}

}  // namespace

void SequenceOperations::pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                             const Tensor& y) {
  require_series(series, x, lengths, y, types_.compute, "pool_series_forward");
  do_pool_series_forward(series, x, lengths, y);
}

void SequenceOperations::pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                              const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "pool_series_backward";
  require_series(series, d_x, lengths, d_y, types_.compute, operation);
  const bool reads_x = series.pool == PaddedSeries::Pool::max;
  require(!reads_x || (is(x, types_.compute, d_x.rows, d_x.columns) && apart(x, d_x)), operation,
          "x must have the shape of d_x, and memory of its own");
  do_pool_series_backward(series, x, lengths, d_y, d_x);
}

void SequenceOperations::embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                                           const Tensor& y, const Tensor& places) {
  const char* const operation = "embedding_forward";
  require(is(tokens, ElementType::int32, tokens.rows, 1), operation, "tokens must be int32 [rows, 1]");
  require(is(table, types_.compute, table.rows, table.columns) && table.count() > 0, operation,
          "table must be [vocabulary, width] in the compute type");
  require(!positions.present() || (is(positions, types_.compute, positions.rows, table.columns) && positions.rows > 0),
          operation, "positions must be [positions, width] in the compute type");
  require(is(y, types_.compute, tokens.rows, table.columns), operation, "y must be [rows, width] in the compute type");
  require(absent_or(places, ElementType::int32, tokens.rows, 1) && (!places.present() || positions.present()),
          operation, "places must be int32 [rows, 1], of positions");
  do_embedding_forward(tokens, table, positions, y, places);
}

void SequenceOperations::embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                                            const Tensor& d_table, const Tensor& d_positions) {
  const char* const operation = "embedding_backward";
  require(is(tokens, ElementType::int32, tokens.rows, 1), operation, "tokens must be int32 [rows, 1]");
  require(!d_table.present() || (is(d_table, types_.master, d_table.rows, d_y.columns) && d_table.count() > 0),
          operation, "d_table must be [vocabulary, width] in the master type");
  require(is(d_y, types_.compute, tokens.rows, d_y.columns), operation,
          "d_y must be [rows, width] in the compute type");
  require(
      !d_positions.present() || (is(d_positions, types_.master, d_positions.rows, d_y.columns) && d_positions.rows > 0),
      operation, "d_positions must be [positions, width] in the master type");
  do_embedding_backward(tokens, d_y, accumulate, d_table, d_positions);
}

void SequenceOperations::project_forward(const Tensor& x, const Tensor& table, const Tensor& y) {
  require(is(table, types_.compute, table.rows, table.columns) && table.count() > 0, "project_forward",
          "table must be [vocabulary, width] in the compute type");
  require(is(x, types_.compute, x.rows, table.columns) && is(y, types_.compute, x.rows, table.rows), "project_forward",
          "x must be [rows, width], y [rows, vocabulary], in the compute type");
  require(apart(x, y), "project_forward", "y must have memory of its own");
  do_project_forward(x, table, y);
}

void SequenceOperations::project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y,
                                          Accumulate accumulate, const Tensor& d_table, const Tensor& d_x) {
  const char* const operation = "project_backward";
  require(is(table, types_.compute, table.rows, table.columns) && table.count() > 0, operation,
          "table must be [vocabulary, width] in the compute type");
  require(is(x, types_.compute, x.rows, table.columns) && is(d_y, types_.compute, x.rows, table.rows), operation,
          "x must be [rows, width], d_y [rows, vocabulary], in the compute type");
  require(absent_or(d_table, types_.master, table.rows, table.columns), operation,
          "d_table must have the shape of the table and the master type");
  require(is(d_x, types_.compute, x.rows, x.columns), operation, "d_x must have the shape of x");
  require(apart(d_x, x) && apart(d_x, d_y), operation, "d_x must have memory of its own");
  do_project_backward(x, table, d_y, accumulate, d_table, d_x);
}

void SequenceOperations::layer_norm_forward(const LayerNormForwardOperands& operands) {
  const auto& [x, residual, scale, shift, sum, mean, inverse, y] = operands;
  const char* const operation = "layer_norm_forward";
  require(is(x, types_.compute, x.rows, x.columns) && x.columns > 0, operation,
          "x must be [rows, width] in the compute type");
  require(x.rows == 0 || residual.present() == sum.present(), operation,
          "residual and sum must both be there, or neither");
  require(absent_or(residual, types_.compute, x.rows, x.columns) && absent_or(sum, types_.compute, x.rows, x.columns),
          operation, "residual and sum must have the shape of x");
  require(is(scale, types_.compute, 1, x.columns) && is(shift, types_.compute, 1, x.columns), operation,
          "scale and shift must be [1, width] in the compute type");
  require(is(mean, types_.master, x.rows, 1) && is(inverse, types_.master, x.rows, 1), operation,
          "mean and inverse must be [rows, 1] in the master type");
  require(is_activation(y, x.rows, x.columns), operation, "y must have the shape of x");
  require(same_or_apart(sum, x) && same_or_apart(sum, residual), operation,
          "sum must have memory of its own, or all of that of x or of the residual");
  require(apart(y, x) && apart(y, sum) && apart(y, residual), operation, "y must have memory of its own");
  do_layer_norm_forward(operands);
}

void SequenceOperations::layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate) {
  const auto& [x, scale, mean, inverse, d_y, d_residual, d_scale, d_shift, d_x] = operands;
  const char* const operation = "layer_norm_backward";
  require(is(x, types_.compute, x.rows, x.columns) && x.columns > 0, operation,
          "x must be [rows, width] in the compute type");
  require(is(scale, types_.compute, 1, x.columns), operation, "scale must be [1, width] in the compute type");
  require(is(mean, types_.master, x.rows, 1) && is(inverse, types_.master, x.rows, 1), operation,
          "mean and inverse must be [rows, 1] in the master type");
  require(is_activation(d_y, x.rows, x.columns) && is(d_x, types_.compute, x.rows, x.columns) &&
              absent_or(d_residual, types_.compute, x.rows, x.columns),
          operation, "d_y, d_residual and d_x must have the shape of x");
  require(absent_or(d_scale, types_.master, 1, x.columns) && absent_or(d_shift, types_.master, 1, x.columns), operation,
          "d_scale and d_shift must be [1, width] in the master type");
  require(apart(d_x, x) && apart(d_x, d_y) && same_or_apart(d_x, d_residual), operation,
          "d_x must have memory of its own, or all of that of d_residual");
  do_layer_norm_backward(operands, accumulate);
}

void SequenceOperations::gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
  require(is(x, types_.compute, x.rows, x.columns), "gelu_forward", "x must be [rows, width] in the compute type");
  require(absent_or(bias, types_.compute, 1, x.columns), "gelu_forward", "bias must be [1, width] in the compute type");
  require(is(y, types_.compute, x.rows, x.columns), "gelu_forward", "y must have the shape of x");
  require(apart(x, y), "gelu_forward", "y must have memory of its own");
  do_gelu_forward(x, bias, y);
}

void SequenceOperations::gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                                       const Tensor& d_bias) {
  require(is(x, types_.compute, x.rows, x.columns), "gelu_backward", "x must be [rows, width] in the compute type");
  require(is(d_y, types_.compute, x.rows, x.columns), "gelu_backward", "d_y must have the shape of x");
  require(absent_or(d_bias, types_.master, 1, x.columns), "gelu_backward",
          "d_bias must be [1, width] in the master type");
  require(apart(x, d_y), "gelu_backward", "d_y must have memory of its own");
  do_gelu_backward(x, d_y, accumulate, d_bias);
}

void SequenceOperations::dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) {
  require(is_activation(x, x.rows, x.columns), "dropout", "x must be [rows, columns] in the compute type");
  require(is(y, x.type, x.rows, x.columns), "dropout", "y must have the shape and the type of x");
  require_dropout(rule, keys, x.rows, "dropout");
  require(!keys.present() || (keys.rows > 0 ? x.rows % keys.rows == 0 : x.rows == 0), "dropout",
          "rows must be as many positions of each sample");
  require(rule.first_position >= 0, "dropout", "the first position must not be negative");
  require(same_or_apart(x, y), "dropout", "y must have memory of its own, or all of that of x");
  do_dropout(x, keys, rule, y);
}

void SequenceOperations::batched_product(const BatchedProduct& shape, const Tensor& a, const Tensor& b,
                                         const Tensor& c) {
  const char* const operation = "batched_product";
  const auto holds = [&](const Tensor& tensor, std::int64_t rows, std::int64_t columns, bool transposed) {
    return is(tensor, types_.compute, shape.count * (transposed ? columns : rows), transposed ? rows : columns);
  };
  require(shape.count >= 0 && shape.rows > 0 && shape.inner > 0 && shape.columns > 0, operation,
          "extents must be positive");
  require(holds(a, shape.rows, shape.inner, shape.a_transposed), operation,
          "a must be [count * rows, inner], or its transposed matrices, in the compute type");
  require(holds(b, shape.inner, shape.columns, shape.b_transposed), operation,
          "b must be [count * inner, columns], or its transposed matrices, in the compute type");
  require(holds(c, shape.rows, shape.columns, false), operation, "c must be [count * rows, columns]");
  require(apart(c, a) && apart(c, b), operation, "c must have memory of its own");
  if (shape.count > 0) do_batched_product(shape, a, b, c);
}

void SequenceOperations::attention_forward(const Attention& shape, const AttentionForwardOperands& operands) {
  const auto& [joint, keys, mask, y, log_sums] = operands;
  const char* const operation = "attention_forward";
  require(is_activation(joint, joint.rows, joint.columns), operation,
          "joint must be [rows, 3 * heads * head size] in the compute type");
  require_shape(shape, joint, keys, mask, joint.type, operation);
  require(shape.first >= 0 && shape.first < shape.context && (shape.first == 0 || joint.rows == shape.context),
          operation, "only queries of one sample can be left out, and not all of them");
  require(is(y, joint.type, joint.rows - shape.first, shape.width()), operation,
          "y must be [rows, heads * head size] in the compute type");
  require(is(log_sums, types_.master, joint.rows / shape.context * shape.heads, shape.context), operation,
          "log_sums must be [samples * heads, context] in the master type");
  require(apart(joint, y), operation, "y must have memory of its own");
  do_attention_forward(shape, operands);
}

void SequenceOperations::attention_backward(const Attention& shape, const AttentionBackwardOperands& operands) {
  const auto& [joint, keys, mask, y, log_sums, d_y, d_joint] = operands;
  const char* const operation = "attention_backward";
  require(is_activation(joint, joint.rows, joint.columns), operation,
          "joint must be [rows, 3 * heads * head size] in the compute type");
  require_shape(shape, joint, keys, mask, joint.type, operation);
  require(shape.first == 0, operation, "there is no way back from a part of the queries");
  require(is(y, joint.type, joint.rows, shape.width()) && is(d_y, joint.type, joint.rows, shape.width()), operation,
          "y and d_y must be [rows, heads * head size] in the compute type");
  require(is(log_sums, types_.master, joint.rows / shape.context * shape.heads, shape.context), operation,
          "log_sums must be [samples * heads, context] in the master type");
  require(is(d_joint, joint.type, joint.rows, joint.columns), operation, "d_joint must have the shape of joint");
  require(apart(d_joint, joint) && apart(d_joint, y) && apart(d_joint, d_y), operation,
          "d_joint must have memory of its own");
  do_attention_backward(shape, operands);
}

void SequenceOperations::lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
  const auto& [gates, recurrent, cells, hidden, places] = operands;
  const char* const operation = "lstm_forward";
  require_shape(shape, gates, recurrent, cells, types_.compute, operation);
  require(is(hidden, types_.compute, cells.rows, shape.hidden), operation, "hidden must have the shape of cells");
  require(apart(hidden, gates) && apart(hidden, cells), operation, "hidden must have memory of its own");
  require_places(places, gates.rows, operation);
  do_lstm_forward(shape, operands);
}

void SequenceOperations::lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) {
  const auto& [gates, recurrent, cells, d_hidden, d_cell, gates_after, places] = operands;
  const char* const operation = "lstm_backward";
  require_shape(shape, gates, recurrent, cells, types_.compute, operation);
  require(is(d_hidden, types_.compute, shape.steps * shape.sequences, shape.hidden), operation,
          "d_hidden must be [steps * sequences, hidden] in the compute type");
  require(is(d_cell, types_.compute, shape.sequences, shape.hidden), operation,
          "d_cell must be [sequences, hidden] in the compute type");
  require(absent_or(gates_after, types_.compute, shape.sequences, 4 * shape.hidden), operation,
          "gates_after must be [sequences, 4 * hidden] in the compute type");
  require(apart(d_hidden, gates) && apart(d_hidden, cells) && apart(d_hidden, d_cell) && apart(d_cell, gates) &&
              apart(d_cell, cells),
          operation, "d_hidden and d_cell must have memory of their own");
  require(apart(gates_after, gates) && apart(gates_after, d_hidden) && apart(gates_after, d_cell), operation,
          "gates_after must have memory of its own");
  require_places(places, gates.rows, operation);
  require(!places.present() || !gates_after.present(), operation, "with places all steps come in one call");
  do_lstm_backward(shape, operands);
}

void SequenceOperations::gru_forward(const Gru& shape, const GruForwardOperands& operands) {
  const auto& [gates, recurrent, bias, products, hidden, places] = operands;
  require_shape(shape, gates, recurrent, products, hidden, types_.compute, "gru_forward");
  require(is(bias, types_.compute, 1, 3 * shape.hidden), "gru_forward",
          "bias must be [1, 3 * hidden] in the compute type");
  require_places(places, gates.rows, "gru_forward");
  do_gru_forward(shape, operands);
}

void SequenceOperations::gru_backward(const Gru& shape, const GruBackwardOperands& operands) {
  const auto& [gates, recurrent, products, hidden, d_hidden, places] = operands;
  require_shape(shape, gates, recurrent, products, hidden, types_.compute, "gru_backward");
  require(is(d_hidden, types_.compute, shape.steps * shape.sequences, shape.hidden), "gru_backward",
          "d_hidden must be [steps * sequences, hidden] in the compute type");
  require(apart(d_hidden, gates) && apart(d_hidden, products) && apart(d_hidden, hidden), "gru_backward",
          "d_hidden must have memory of its own");
  require_places(places, gates.rows, "gru_backward");
  do_gru_backward(shape, operands);
}

bool SequenceOperations::is_activation(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const {
  return is(tensor, types_.compute, rows, columns) || is(tensor, types_.narrow, rows, columns);
}

}  // namespace lockstep::model
