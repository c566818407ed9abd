#include "model/reference/reference_sequences.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "model/formulas/dropout.hpp"
#include "model/formulas/normalization.hpp"

namespace lockstep::model {

namespace {

double& at(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return tensor.elements<double>()[static_cast<std::size_t>(row * tensor.columns + column)];
}
double& at(const Tensor& tensor, std::int64_t index) { return at(tensor, 0, index); }
std::int32_t token(const Tensor& tokens, std::int64_t row) {
  return tokens.elements<std::int32_t>()[static_cast<std::size_t>(row)];
}
std::uint64_t key(const Tensor& keys, std::int64_t sample) {
  return keys.elements<std::uint64_t>()[static_cast<std::size_t>(sample)];
}
/// Clears the sums unless they are accumulated.
void prepare(Accumulate accumulate, const Tensor& sums) {
  if (accumulate == Accumulate::no && sums.present()) std::ranges::fill(sums.elements<double>(), 0.0);
}

}  // namespace

void ReferenceSequences::do_to_time_major(const Tensor& tokens, const Tensor& out) {
  for (std::int64_t sample = 0; sample < tokens.rows; ++sample) {
    for (std::int64_t position = 0; position < tokens.columns; ++position) {
      out.elements<std::int32_t>()[static_cast<std::size_t>(position * tokens.rows + sample)] =
          token(tokens, sample * tokens.columns + position);
    }
  }
}

void ReferenceSequences::do_to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens) {
  const auto number = [&](std::int64_t row, std::int64_t column) -> double {
    const auto i = static_cast<std::size_t>(row * samples.columns + column);
    if (samples.type == ElementType::uint8) return samples.elements<std::uint8_t>()[i];
    return samples.type == ElementType::float32 ? double(samples.elements<float>()[i]) : samples.elements<double>()[i];
  };
  for (std::int64_t row = 0; row < samples.rows; ++row) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      const double value = number(row, range.first + i), last = static_cast<double>(range.vocabulary - 1);
      const double token = value > 0 ? std::min(std::floor(value), last) : 0;
      tokens.elements<std::int32_t>()[static_cast<std::size_t>(row * range.count + i)] =
          static_cast<std::int32_t>(token);
    }
  }
}

void ReferenceSequences::do_places_in_documents(const Tensor& tokens, const Documents& documents,
                                                const Tensor& places) {
  const bool is_time_major = documents.order == RowOrder::time_major;
  const std::int64_t step = is_time_major ? tokens.columns : 1;
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    const bool is_first = is_time_major ? i < tokens.columns : documents.first == 0 && i % tokens.columns == 0;
    std::int32_t* const place = places.elements<std::int32_t>().data() + documents.first + i;
    *place = token(tokens, i) == documents.separator ? 0 : is_first ? (is_time_major ? 1 : 0) : place[-step] + 1;
  }
}

void ReferenceSequences::do_padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks) {
  if (lengths.rows == 0) return;
  const std::int64_t steps = marks.rows / lengths.rows;
  for (std::int64_t sample = 0; sample < lengths.rows; ++sample) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const bool inside = rows == PaddedRows::inside;
      const std::int64_t row = inside ? sample * steps + step : (steps - 1 - step) * lengths.rows + sample;
      const std::int64_t length = std::min<std::int64_t>(token(lengths, sample), steps);
      const bool is_marked = inside ? step < length : step != length - 1;
      marks.elements<std::int32_t>()[static_cast<std::size_t>(row)] = is_marked ? 1 : 0;
    }
  }
}

void ReferenceSequences::do_carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const double carried = token(places, r) != 0 ? at(x, r, c) : 0;
      at(y, r, c) = accumulate == Accumulate::yes ? at(y, r, c) + carried : carried;
    }
  }
}

namespace {

/// Returns the first step with the greatest number of a column.
std::int64_t step_of_greatest(const Tensor& x, std::int64_t first, std::int64_t length, std::int64_t column) {
  std::int64_t greatest = 0;
  for (std::int64_t step = 1; step < length; ++step) {
    if (at(x, first + step, column) > at(x, first + greatest, column)) greatest = step;
  }
  return greatest;
}

}  // namespace

void ReferenceSequences::do_pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                                const Tensor& y) {
  for (std::int64_t sample = 0; sample < y.rows; ++sample) {
    const std::int64_t first = sample * series.steps,
                       length = std::min<std::int64_t>(token(lengths, sample), series.steps);
    for (std::int64_t c = 0; c < y.columns; ++c) {
      at(y, sample, c) = 0;
      if (length <= 0) continue;
      if (series.pool == PaddedSeries::Pool::mean) {
        for (std::int64_t step = 0; step < length; ++step) {
          at(y, sample, c) += at(x, first + step, c) / static_cast<double>(length);
        }
      } else {
        const bool is_last = series.pool == PaddedSeries::Pool::last;
        at(y, sample, c) = at(x, first + (is_last ? length - 1 : step_of_greatest(x, first, length, c)), c);
      }
    }
  }
}

void ReferenceSequences::do_pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                                 const Tensor& d_y, const Tensor& d_x) {
  std::ranges::fill(d_x.elements<double>(), 0.0);
  for (std::int64_t sample = 0; sample < d_y.rows; ++sample) {
    const std::int64_t first = sample * series.steps,
                       length = std::min<std::int64_t>(token(lengths, sample), series.steps);
    for (std::int64_t c = 0; c < d_y.columns && length > 0; ++c) {
      if (series.pool == PaddedSeries::Pool::mean) {
        for (std::int64_t step = 0; step < length; ++step) {
          at(d_x, first + step, c) = at(d_y, sample, c) / static_cast<double>(length);
        }
      } else {
        const bool is_last = series.pool == PaddedSeries::Pool::last;
        at(d_x, first + (is_last ? length - 1 : step_of_greatest(x, first, length, c)), c) = at(d_y, sample, c);
      }
    }
  }
}

void ReferenceSequences::do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                                              const Tensor& y, const Tensor& places) {
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t c = 0; c < y.columns; ++c) {
      at(y, r, c) = at(table, token(tokens, r), c);
      if (positions.present())
        at(y, r, c) += at(positions, places.present() ? token(places, r) : r % positions.rows, c);
    }
  }
}

void ReferenceSequences::do_embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                                               const Tensor& d_table, const Tensor& d_positions) {
  prepare(accumulate, d_table);
  prepare(accumulate, d_positions);
  for (std::int64_t r = 0; r < d_y.rows; ++r) {
    for (std::int64_t c = 0; c < d_y.columns; ++c) {
      if (d_table.present()) at(d_table, token(tokens, r), c) += at(d_y, r, c);
      if (d_positions.present()) at(d_positions, r % d_positions.rows, c) += at(d_y, r, c);
    }
  }
}

void ReferenceSequences::do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) {
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t v = 0; v < y.columns; ++v) {
      double sum = 0;
      for (std::int64_t c = 0; c < x.columns; ++c) sum += at(x, r, c) * at(table, v, c);
      at(y, r, v) = sum;
    }
  }
}

void ReferenceSequences::do_project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y,
                                             Accumulate accumulate, const Tensor& d_table, const Tensor& d_x) {
  prepare(accumulate, d_table);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double sum = 0;
      for (std::int64_t v = 0; v < table.rows; ++v) {
        if (d_table.present()) at(d_table, v, c) += at(d_y, r, v) * at(x, r, c);
        sum += at(d_y, r, v) * at(table, v, c);
      }
      at(d_x, r, c) = sum;
    }
  }
}

void ReferenceSequences::do_layer_norm_forward(const LayerNormForwardOperands& operands) {
  const auto& [x, residual, scale, shift, sum, mean, inverse, y] = operands;
  const auto width = static_cast<double>(x.columns);
  if (sum.present()) {
    for (std::int64_t i = 0; i < x.count(); ++i) at(sum, i) = at(x, i) + at(residual, i);
  }
  const Tensor& in = sum.present() ? sum : x;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double average = 0, variance = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) average += at(in, r, c) / width;
    for (std::int64_t c = 0; c < x.columns; ++c) variance += std::pow(at(in, r, c) - average, 2) / width;
    at(mean, r) = average;
    at(inverse, r) = 1 / std::sqrt(variance + formulas::kLayerNormEpsilon);
    for (std::int64_t c = 0; c < x.columns; ++c) {
      at(y, r, c) = at(scale, c) * (at(in, r, c) - at(mean, r)) * at(inverse, r) + at(shift, c);
    }
  }
}

void ReferenceSequences::do_layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate) {
  const auto& [x, scale, mean, inverse, d_y, d_residual, d_scale, d_shift, d_x] = operands;
  const auto width = static_cast<double>(x.columns);
  prepare(accumulate, d_scale);
  prepare(accumulate, d_shift);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto x_hat = [&](std::int64_t c) { return (at(x, r, c) - at(mean, r)) * at(inverse, r); };
    double sum = 0, product = 0;  // sums of the gradient, and of the gradient times x_hat
    for (std::int64_t c = 0; c < x.columns; ++c) {
      if (d_scale.present()) at(d_scale, c) += at(d_y, r, c) * x_hat(c);
      if (d_shift.present()) at(d_shift, c) += at(d_y, r, c);
      sum += at(d_y, r, c) * at(scale, c);
      product += at(d_y, r, c) * at(scale, c) * x_hat(c);
    }
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const double d = at(inverse, r) * (at(d_y, r, c) * at(scale, c) - (sum + x_hat(c) * product) / width);
      at(d_x, r, c) = d + (d_residual.present() ? at(d_residual, r, c) : 0);
    }
  }
}

void ReferenceSequences::do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double& v = at(x, r, c);
      if (bias.present()) v += at(bias, c);
      at(y, r, c) = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    }
  }
}

void ReferenceSequences::do_gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                                          const Tensor& d_bias) {
  prepare(accumulate, d_bias);
  const double root = std::sqrt(2 / std::numbers::pi);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const double v = at(x, r, c);
      const double t = std::tanh(root * (v + 0.044715 * v * v * v));
      at(d_y, r, c) *= 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * root * (1 + 3 * 0.044715 * v * v);
      if (d_bias.present()) at(d_bias, c) += at(d_y, r, c);
    }
  }
}

void ReferenceSequences::do_batched_product(const BatchedProduct& shape, const Tensor& a, const Tensor& b,
                                            const Tensor& c) {
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const Tensor left = a.row_range(i * (a.rows / shape.count), a.rows / shape.count);
    const Tensor right = b.row_range(i * (b.rows / shape.count), b.rows / shape.count);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.inner; ++k) {
          sum += (shape.a_transposed ? at(left, k, row) : at(left, row, k)) *
                 (shape.b_transposed ? at(right, column, k) : at(right, k, column));
        }
        at(c, i * shape.rows + row, column) = sum;
      }
    }
  }
}

void ReferenceSequences::do_dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) {
  const formulas::DropoutNumbers numbers = formulas::dropout_numbers(rule);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      at(y, r, c) = at(x, r, c);
      if (rule.rate == 0) continue;
      const auto [sample, position] = formulas::indices_of(rule.order, keys.rows, x.rows / keys.rows, r);
      const auto index = static_cast<std::uint64_t>((rule.first_position + position) * x.columns + c);
      at(y, r, c) *= static_cast<double>(formulas::dropout_element(numbers, key(keys, sample), index));
    }
  }
}

namespace {

/// One head of one sample.
struct Head {
  const Attention& shape;
  const Tensor& keys;
  const AttentionMask& mask;
  std::int64_t sample, head;

  /// First key that a query sees, and the end of its keys.
  std::int64_t first_key(std::int64_t query) const {
    return mask.places.present() ? query - token(mask.places, row(query)) : 0;
  }
  std::int64_t end_of_keys(std::int64_t query) const {
    const std::int64_t end = shape.keys_of(query);
    return mask.lengths.present() ? std::min<std::int64_t>(end, token(mask.lengths, sample)) : end;
  }

  std::int64_t row(std::int64_t position) const { return sample * shape.context + position; }
  std::int64_t column(std::int64_t c) const { return head * shape.head_size + c; }
  double& query(const Tensor& joint, std::int64_t i, std::int64_t c) const { return at(joint, row(i), column(c)); }
  double& key(const Tensor& joint, std::int64_t j, std::int64_t c) const {
    return at(joint, row(j), shape.width() + column(c));
  }
  double& value(const Tensor& joint, std::int64_t j, std::int64_t c) const {
    return at(joint, row(j), 2 * shape.width() + column(c));
  }
  double& out(const Tensor& y, std::int64_t i, std::int64_t c) const { return at(y, row(i), column(c)); }
  double& log_sum(const Tensor& log_sums, std::int64_t i) const { return at(log_sums, sample * shape.heads + head, i); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape.head_size)); }
  double score(const Tensor& joint, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t c = 0; c < shape.head_size; ++c) sum += query(joint, i, c) * key(joint, j, c);
    return sum * scale();
  }
  /// Returns the dropout factor of the probability.
  double kept(std::int64_t i, std::int64_t j) const {
    if (shape.dropout.rate == 0) return 1;
    const auto index = static_cast<std::uint64_t>((head * shape.context + i) * shape.context + j);
    return static_cast<double>(
        formulas::dropout_element(formulas::dropout_numbers(shape.dropout), model::key(keys, sample), index));
  }
};

template <class Visit>
void visit_heads(const Attention& shape, const Tensor& joint, const Tensor& keys, const AttentionMask& mask,
                 Visit visit) {
  for (std::int64_t sample = 0; sample < joint.rows / shape.context; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) visit(Head{shape, keys, mask, sample, head});
  }
}

}  // namespace

void ReferenceSequences::do_attention_forward(const Attention& shape, const AttentionForwardOperands& operands) {
  const auto& [joint, keys, mask, y, log_sums] = operands;
  visit_heads(shape, joint, keys, mask, [&](const Head& head) {
    for (std::int64_t i = shape.first; i < shape.context; ++i) {
      const std::int64_t first = head.first_key(i), end = head.end_of_keys(i);
      for (std::int64_t c = 0; c < shape.head_size; ++c) head.out(y, i - shape.first, c) = 0;
      head.log_sum(log_sums, i) = 0;
      if (first >= end) continue;
      double greatest = head.score(joint, i, first), total = 0;
      for (std::int64_t j = first + 1; j < end; ++j) greatest = std::max(greatest, head.score(joint, i, j));
      for (std::int64_t j = first; j < end; ++j) total += std::exp(head.score(joint, i, j) - greatest);
      head.log_sum(log_sums, i) = greatest + std::log(total);
      for (std::int64_t j = first; j < end; ++j) {
        const double p = std::exp(head.score(joint, i, j) - head.log_sum(log_sums, i)) * head.kept(i, j);
        for (std::int64_t c = 0; c < shape.head_size; ++c)
          head.out(y, i - shape.first, c) += p * head.value(joint, j, c);
      }
    }
  });
}

/// With probabilities p and dropout factors k: d_v[j] = sum of p k d_y[i]; d_p = k d_y[i] v[j]'; d_score = p (d_p - sum
/// over j of p d_p). This sum equals d_y[i] y[i]'.
void ReferenceSequences::do_attention_backward(const Attention& shape, const AttentionBackwardOperands& operands) {
  const auto& [joint, keys, mask, y, log_sums, d_y, d_joint] = operands;
  std::ranges::fill(d_joint.elements<double>(), 0.0);
  visit_heads(shape, joint, keys, mask, [&](const Head& head) {
    for (std::int64_t i = 0; i < shape.context; ++i) {
      double mean = 0;
      for (std::int64_t c = 0; c < shape.head_size; ++c) mean += head.out(d_y, i, c) * head.out(y, i, c);
      for (std::int64_t j = head.first_key(i); j < head.end_of_keys(i); ++j) {
        const double p = std::exp(head.score(joint, i, j) - head.log_sum(log_sums, i)), kept = head.kept(i, j);
        double d_p = 0;
        for (std::int64_t c = 0; c < shape.head_size; ++c) {
          d_p += kept * head.out(d_y, i, c) * head.value(joint, j, c);
          head.value(d_joint, j, c) += p * kept * head.out(d_y, i, c);
        }
        const double d_score = p * (d_p - mean) * head.scale();
        for (std::int64_t c = 0; c < shape.head_size; ++c) {
          head.query(d_joint, i, c) += d_score * head.key(joint, j, c);
          head.key(d_joint, j, c) += d_score * head.query(joint, i, c);
        }
      }
    }
  });
}

namespace {

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

/// False if a sequence restarts at this row: no state enters it, and no gradient goes to the previous step.
bool carries(const Tensor& places, std::int64_t row) { return !places.present() || token(places, row) != 0; }

}  // namespace

void ReferenceSequences::do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
  const auto& [gates, recurrent, cells, hidden, places] = operands;
  const std::int64_t units = shape.hidden;
  for (std::int64_t row = 0; row < shape.steps * shape.sequences; ++row) {  // gates and previous states
    const std::int64_t after = row + shape.sequences;
    const double carried = carries(places, row) ? 1 : 0;
    for (std::int64_t g = 0; g < 4 * units; ++g) {
      for (std::int64_t h = 0; h < units; ++h) at(gates, row, g) += carried * at(hidden, row, h) * at(recurrent, h, g);
    }
    for (std::int64_t u = 0; u < units; ++u) {
      double &i = at(gates, row, u), &f = at(gates, row, units + u), &g = at(gates, row, 2 * units + u),
             &o = at(gates, row, 3 * units + u);
      i = sigmoid(i);
      f = sigmoid(f);
      g = std::tanh(g);
      o = sigmoid(o);
      at(cells, after, u) = carried * f * at(cells, row, u) + i * g;
      at(hidden, after, u) = o * std::tanh(at(cells, after, u));
    }
  }
}

void ReferenceSequences::do_lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) {
  const auto& [gates, recurrent, cells, d_hidden, d_cell, gates_after, places] = operands;
  const std::int64_t units = shape.hidden, rows = shape.steps * shape.sequences;
  if (!gates_after.present()) std::ranges::fill(d_cell.elements<double>(), 0.0);
  for (std::int64_t row = 0; row < gates_after.rows; ++row) {
    for (std::int64_t h = 0; h < units; ++h) {
      double& reached = at(d_hidden, rows - shape.sequences + row, h);
      for (std::int64_t g = 0; g < 4 * units; ++g) reached += at(recurrent, h, g) * at(gates_after, row, g);
    }
  }
  for (std::int64_t row = rows - 1; row >= 0; --row) {
    const std::int64_t after = row + shape.sequences, sequence = row % shape.sequences;
    const double carried = carries(places, row) ? 1 : 0;
    for (std::int64_t u = 0; u < units; ++u) {
      double &i = at(gates, row, u), &f = at(gates, row, units + u), &g = at(gates, row, 2 * units + u),
             &o = at(gates, row, 3 * units + u);
      const double shown = std::tanh(at(cells, after, u));
      const double d_h = at(d_hidden, row, u);
      const double d_c = at(d_cell, sequence, u) + d_h * o * (1 - shown * shown);
      at(d_cell, sequence, u) = carried * d_c * f;
      const double d_i = d_c * g, d_f = carried * d_c * at(cells, row, u), d_g = d_c * i, d_o = d_h * shown;
      i = d_i * i * (1 - i);
      f = d_f * f * (1 - f);
      g = d_g * (1 - g * g);
      o = d_o * o * (1 - o);
    }
    if (row < shape.sequences || !carries(places, row)) continue;
    for (std::int64_t h = 0; h < units; ++h) {
      double& reached = at(d_hidden, row - shape.sequences, h);
      for (std::int64_t g = 0; g < 4 * units; ++g) reached += at(recurrent, h, g) * at(gates, row, g);
    }
  }
}

void ReferenceSequences::do_gru_forward(const Gru& shape, const GruForwardOperands& operands) {
  const auto& [gates, recurrent, bias, products, hidden, places] = operands;
  const std::int64_t units = shape.hidden;
  for (std::int64_t row = 0; row < shape.steps * shape.sequences; ++row) {  // gates and previous states
    const double carried = carries(places, row) ? 1 : 0;
    for (std::int64_t g = 0; g < 3 * units; ++g) {
      at(products, row, g) = at(bias, g);
      for (std::int64_t h = 0; h < units; ++h) {
        at(products, row, g) += carried * at(hidden, row, h) * at(recurrent, h, g);
      }
    }
    for (std::int64_t u = 0; u < units; ++u) {
      double &r = at(gates, row, u), &z = at(gates, row, units + u), &n = at(gates, row, 2 * units + u);
      r = sigmoid(r + at(products, row, u));
      z = sigmoid(z + at(products, row, units + u));
      n = std::tanh(n + r * at(products, row, 2 * units + u));
      at(hidden, row + shape.sequences, u) = (1 - z) * n + z * carried * at(hidden, row, u);
    }
  }
}

void ReferenceSequences::do_gru_backward(const Gru& shape, const GruBackwardOperands& operands) {
  const auto& [gates, recurrent, products, hidden, d_hidden, places] = operands;
  const std::int64_t units = shape.hidden;
  for (std::int64_t row = shape.steps * shape.sequences - 1; row >= 0; --row) {
    const double carried = carries(places, row) ? 1 : 0;
    const std::int64_t before = carried == 0 ? -1 : row - shape.sequences;
    for (std::int64_t u = 0; u < units; ++u) {
      double &r = at(gates, row, u), &z = at(gates, row, units + u), &n = at(gates, row, 2 * units + u);
      const double d_h = at(d_hidden, row, u);
      const double d_new = d_h * (1 - z) * (1 - n * n);
      const double d_update = d_h * (carried * at(hidden, row, u) - n) * z * (1 - z);
      const double d_reset = d_new * at(products, row, 2 * units + u) * r * (1 - r);
      if (before >= 0) at(d_hidden, before, u) += d_h * z;
      at(products, row, u) = d_reset;
      at(products, row, units + u) = d_update;
      at(products, row, 2 * units + u) = d_new * r;
      r = d_reset;
      z = d_update;
      n = d_new;
    }
    if (before < 0) continue;
    for (std::int64_t h = 0; h < units; ++h) {
      for (std::int64_t g = 0; g < 3 * units; ++g) {
        at(d_hidden, before, h) += at(recurrent, h, g) * at(products, row, g);
      }
    }
  }
}

}  // namespace lockstep::model
