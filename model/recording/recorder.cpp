#include "model/recording/recorder.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace lockstep::model {

OperationRecorder::OperationRecorder() : images_(*this), sequences_(*this) {}

ValueNumber OperationRecorder::read(const Tensor& tensor) const {
  const auto* const begin = static_cast<const std::byte*>(tensor.data);
  for (auto held = held_.rbegin(); held != held_.rend(); ++held) {
    if (held->begin == begin && held->bytes == tensor.bytes()) return held->value;
  }
  throw std::logic_error(
      fmt::format("an operation reads {} x {} elements that none has written as a whole", tensor.rows, tensor.columns));
}

void OperationRecorder::end_overlapped(const Tensor& tensor) {
  const auto* const begin = static_cast<const std::byte*>(tensor.data);
  std::erase_if(
      held_, [&](const Held& held) { return held.begin < begin + tensor.bytes() && begin < held.begin + held.bytes; });
}

void OperationRecorder::hold(const Tensor& tensor, ValueNumber value) {
  held_.push_back({static_cast<const std::byte*>(tensor.data), tensor.bytes(), value});
}

ValueNumber OperationRecorder::define(const Tensor& tensor, RecordedValue value) {
  end_overlapped(tensor);
  value.rows = tensor.rows;
  value.columns = tensor.columns;
  recording.values.push_back(std::move(value));
  hold(tensor, recording.values.size() - 1);
  return recording.values.size() - 1;
}

void OperationRecorder::record(const RecordedKind& kind, std::vector<ValueNumber> inputs,
                               std::span<const Tensor> outputs) {
  RecordedOperation operation{.kind = kind, .inputs = std::move(inputs), .outputs = {}};
  for (const Tensor& output : outputs) end_overlapped(output);
  for (const Tensor& output : outputs) {
    recording.values.push_back({.rows = output.rows, .columns = output.columns});
    operation.outputs.push_back(recording.values.size() - 1);
    hold(output, operation.outputs.back());
  }
  recording.operations.push_back(std::move(operation));
}

void OperationRecorder::do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                          const Tensor& y) {
  record(recorded::Linear{activation}, {read(x), read(w), read_if_present(bias)}, y);
}

void OperationRecorder::do_elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) {
  record(recorded::Apply{f}, {read(x)}, y);
}

void OperationRecorder::do_add(const Tensor& x, const Tensor& to) { record(recorded::Add{}, {read(to), read(x)}, to); }

/// Whole values, one behind the other, are a concatenation.
void OperationRecorder::do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to,
                                        std::int64_t to_column, std::int64_t columns) {
  if (from_column != 0 || columns != from.columns) missing_operation(__func__);
  if (to_column == 0) joined_.clear(), joining_.columns.clear();
  joined_.push_back(read(from));
  joining_.columns.push_back(columns);
  if (to_column + columns == to.columns) record(std::exchange(joining_, {}), std::exchange(joined_, {}), to);
}

/// Both types are equal here: the same value in two places. Casts go to and from states. With a single step an LSTM's
/// last rows are all of its rows; a cast then means the last rows.
void OperationRecorder::do_cast(const Tensor& in, const Tensor& out) {
  ValueNumber value = read(in);
  if (const auto last = last_rows_.find(value); last != last_rows_.end()) value = last->second;
  end_overlapped(out);
  hold(out, value);
}

void OperationRecorder::Images::do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w,
                                                       const Tensor& bias, Activation activation, const Tensor& y) {
  recorder_.record(recorded::Convolve{shape, activation},
                   {recorder_.read(x), recorder_.read(w), recorder_.read_if_present(bias)}, y);
}

void OperationRecorder::Images::do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y,
                                                    const Tensor& /*chosen*/) {
  recorder_.record(recorded::MaxPool{shape}, {recorder_.read(x)}, y);
}

void OperationRecorder::Images::do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  recorder_.record(recorded::GlobalAverage{in}, {recorder_.read(x)}, y);
}

void OperationRecorder::Images::do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                                                  const Tensor& y) {
  const ImageShape in{.height = x.columns / norm.channels, .width = 1, .channels = norm.channels};
  recorder_.record(recorded::NormalizeResponse{in, norm}, {recorder_.read(x)}, y);
}

void OperationRecorder::Images::do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                                     const Tensor& x, const Tensor& y) {
  recorder_.record(recorded::Subsample{in, out, stride}, {recorder_.read(x)}, y);
}

void OperationRecorder::Images::do_batch_norm_inference(const BatchNorm& norm,
                                                        const BatchNormInferenceOperands& operands) {
  recorder_.record(
      recorded::NormalizeBatch{norm},
      {recorder_.read(operands.x), recorder_.read(operands.mean), recorder_.read(operands.variance),
       recorder_.read(operands.scale), recorder_.read(operands.shift), recorder_.read_if_present(operands.residual)},
      operands.y);
}

void OperationRecorder::Sequences::do_to_time_major(const Tensor& tokens, const Tensor& out) {
  recorder_.record(recorded::ToTimeMajor{}, {recorder_.read(tokens)}, out);
}

void OperationRecorder::Sequences::do_embedding_forward(const Tensor& tokens, const Tensor& table,
                                                        const Tensor& positions, const Tensor& y) {
  recorder_.record(recorded::Embed{},
                   {recorder_.read(tokens), recorder_.read(table), recorder_.read_if_present(positions)}, y);
}

void OperationRecorder::Sequences::do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) {
  recorder_.record(recorded::Project{}, {recorder_.read(x), recorder_.read(table)}, y);
}

void OperationRecorder::Sequences::do_layer_norm_forward(const LayerNormForwardOperands& operands) {
  ValueNumber x = recorder_.read(operands.x);
  if (operands.residual.present()) {
    recorder_.record(recorded::Add{}, {x, recorder_.read(operands.residual)}, operands.sum);
    x = recorder_.read(operands.sum);
  }
  recorder_.record(recorded::NormalizeLayer{}, {x, recorder_.read(operands.scale), recorder_.read(operands.shift)},
                   operands.y);
}

void OperationRecorder::Sequences::do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
  if (bias.present()) recorder_.record(recorded::AddRow{}, {recorder_.read(x), recorder_.read(bias)}, x);
  recorder_.record(recorded::Gelu{}, {recorder_.read(x)}, y);
}

void OperationRecorder::Sequences::do_attention_forward(const Attention& shape,
                                                        const AttentionForwardOperands& operands) {
  recorder_.record(recorded::Attend{shape}, {recorder_.read(operands.joint)}, operands.y);
}

void OperationRecorder::Sequences::do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
  const std::int64_t rows = shape.sequences, last = shape.steps * rows;
  const auto first = [&](const Tensor& states) { return recorder_.read(states.row_range(0, rows)); };
  const Tensor all = operands.hidden.row_range(rows, last);
  const std::array<Tensor, 3> outputs{all, operands.hidden.row_range(last, rows), operands.cells.row_range(last, rows)};
  recorder_.record(recorded::RunLstm{shape},
                   {recorder_.read(operands.gates), recorder_.read(operands.recurrent), first(operands.hidden),
                    first(operands.cells)},
                   outputs);
  const std::vector<ValueNumber>& results = recorder_.recording.operations.back().outputs;
  if (shape.steps > 1) return;
  recorder_.end_overlapped(all);
  recorder_.hold(all, results[0]);
  recorder_.last_rows_[results[0]] = results[1];
}

}  // namespace lockstep::model
