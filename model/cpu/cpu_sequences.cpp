#include "model/cpu/cpu_sequences.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "model/cpu/attention.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/gemm.hpp"
#include "model/cpu/gru.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/cpu/lstm.hpp"
#include "model/formulas/padding.hpp"
#include "model/formulas/token.hpp"

namespace lockstep::model::cpu {

namespace {

/// Smallest array for which a pass uses several threads, in elements.
constexpr std::size_t kThreadingElements = 32 * 1024;
/// Elements of a cache line; partitions are aligned to it.
constexpr std::size_t kLine = 16;
/// Largest number of blocks of rows that are summed separately.
constexpr std::size_t kMaxBlocks = 16;
constexpr std::size_t kBlockRows = 64;

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }

/// Returns memory of the calling thread for a row of a bf16 tensor.
std::span<float> floats_of_thread(std::size_t count) {
  thread_local std::vector<float> own;
  if (own.size() < count) own.resize(count);
  return std::span(own).first(count);
}

const float* row_or_null(const float* data, std::size_t offset) { return data == nullptr ? nullptr : data + offset; }

/// Returns the smallest number of rows of `across` columns (or the reverse) for which a pass uses several threads.
std::size_t threshold(std::size_t across) { return kThreadingElements / std::max<std::size_t>(across, 1) + 2; }

}  // namespace

std::span<float> CpuSequences::workspace(std::size_t elements) {
  if (workspace_.size() < elements) workspace_.resize(elements);
  return std::span(workspace_).first(elements);
}

void CpuSequences::do_to_time_major(const Tensor& tokens, const Tensor& out) {
  const std::size_t samples = size(tokens.rows), positions = size(tokens.columns);
  const auto from = tokens.elements<std::int32_t>(), to = out.elements<std::int32_t>();
  for (std::size_t p = 0; p < positions; ++p) {
    for (std::size_t s = 0; s < samples; ++s) to[p * samples + s] = from[s * positions + p];
  }
}

void CpuSequences::do_to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens) {
  const std::size_t numbers = size(samples.columns), count = size(range.count);
  const auto to = tokens.elements<std::int32_t>();
  const auto take = [&](auto from) {
    for (std::size_t s = 0; s < size(samples.rows); ++s) {
      for (std::size_t i = 0; i < count; ++i) {
        to[s * count + i] = formulas::token(from[s * numbers + size(range.first) + i], range.vocabulary);
      }
    }
  };
  if (samples.type == ElementType::uint8) {
    take(samples.elements<std::uint8_t>());
  } else if (samples.type == ElementType::float32) {
    take(samples.elements<float>());
  } else {
    take(samples.elements<double>());
  }
}

void CpuSequences::do_places_in_documents(const Tensor& tokens, const Documents& documents, const Tensor& places) {
  const auto token = tokens.elements<std::int32_t>();
  const bool is_time_major = documents.order == RowOrder::time_major;
  const std::ptrdiff_t step = is_time_major ? tokens.columns : 1;
  std::int32_t* place = places.elements<std::int32_t>().data() + documents.first;
  for (std::size_t i = 0; i < token.size(); ++i, ++place) {
    const bool is_first =
        is_time_major ? i < size(tokens.columns) : documents.first == 0 && i % size(tokens.columns) == 0;
    *place = token[i] == documents.separator ? 0 : is_first ? (is_time_major ? 1 : 0) : place[-step] + 1;
  }
}

void CpuSequences::do_padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks) {
  if (lengths.rows == 0) return;
  const auto mark = marks.elements<std::int32_t>(), length = lengths.elements<std::int32_t>();
  for (std::size_t row = 0; row < mark.size(); ++row) {
    mark[row] = formulas::padded_row(row, length.data(), length.size(), mark.size(), rows);
  }
}

void CpuSequences::do_carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y) {
  const auto from = x.elements<float>(), to = y.elements<float>();
  const auto place = places.elements<std::int32_t>();
  const std::size_t width = size(x.columns);
  threads_.split(place.size(), 1, threshold(width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const auto row = from.subspan(r * width, width), out = to.subspan(r * width, width);
      if (accumulate == Accumulate::yes) {
        if (place[r] != 0) add_scaled(row, 1, out);
      } else if (place[r] == 0) {
        std::ranges::fill(out, 0.0f);
      } else if (row.data() != out.data()) {
        std::ranges::copy(row, out.begin());
      }
    }
  });
}

void CpuSequences::do_pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                          const Tensor& y) {
  const std::size_t steps = size(series.steps), width = size(y.columns);
  const auto in = x.elements<float>(), out = y.elements<float>();
  const auto length = lengths.elements<std::int32_t>();
  threads_.split(length.size(), 1, threshold(steps * width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t s = begin; s < end; ++s) {
      const auto to = out.subspan(s * width, width);
      const std::size_t count = formulas::steps_of_length(length[s], steps);
      const auto row = [&](std::size_t step) { return in.subspan((s * steps + step) * width, width); };
      if (count == 0 || series.pool == PaddedSeries::Pool::mean) {
        std::ranges::fill(to, 0.0f);
        for (std::size_t step = 0; step < count; ++step) add_scaled(row(step), 1, to);
        for (float& v : to) v /= static_cast<float>(std::max<std::size_t>(count, 1));
        continue;
      }
      const bool is_last = series.pool == PaddedSeries::Pool::last;
      std::ranges::copy(row(is_last ? count - 1 : 0), to.begin());
      for (std::size_t step = 1; !is_last && step < count; ++step) {
        for (std::size_t c = 0; c < width; ++c) to[c] = row(step)[c] > to[c] ? row(step)[c] : to[c];
      }
    }
  });
}

void CpuSequences::do_pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                                           const Tensor& d_y, const Tensor& d_x) {
  const std::size_t steps = size(series.steps), width = size(d_y.columns);
  const auto in = x.elements<float>(), gradient = d_y.elements<float>(), out = d_x.elements<float>();
  const auto length = lengths.elements<std::int32_t>();
  threads_.split(length.size(), 1, threshold(steps * width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t s = begin; s < end; ++s) {
      const std::size_t first = s * steps * width, count = formulas::steps_of_length(length[s], steps);
      const auto from = gradient.subspan(s * width, width);
      std::ranges::fill(out.subspan(first, steps * width), 0.0f);
      if (series.pool == PaddedSeries::Pool::mean) {
        for (std::size_t i = 0; i < count * width; ++i) out[first + i] = from[i % width] / static_cast<float>(count);
      } else if (series.pool == PaddedSeries::Pool::last) {
        if (count > 0) std::ranges::copy(from, out.subspan(first + (count - 1) * width).begin());
      } else {
        for (std::size_t c = 0; c < width && count > 0; ++c) {
          std::size_t greatest = first + c;
          for (std::size_t i = greatest + width; i < first + count * width; i += width) {
            if (in[i] > in[greatest]) greatest = i;
          }
          out[greatest] = from[c];
        }
      }
    }
  });
}

void CpuSequences::do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                                        const Tensor& y, const Tensor& places) {
  const std::size_t width = size(table.columns);
  const auto token = tokens.elements<std::int32_t>(), place = places.elements<std::int32_t>();
  const auto rows = table.elements<float>(), out = y.elements<float>();
  const auto table_of_positions = positions.elements<float>();
  threads_.split(token.size(), 1, threshold(width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      assert(token[r] >= 0 && token[r] < table.rows);
      const auto to = out.subspan(r * width, width);
      std::ranges::copy(rows.subspan(size(token[r]) * width, width), to.begin());
      if (table_of_positions.empty()) continue;
      const std::size_t position = place.empty() ? r % size(positions.rows) : size(place[r]);
      add_scaled(table_of_positions.subspan(position * width, width), 1, to);
    }
  });
}

void CpuSequences::do_embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate,
                                         const Tensor& d_table, const Tensor& d_positions) {
  const std::size_t width = size(d_y.columns);
  const auto token = tokens.elements<std::int32_t>();
  const auto gradient = d_y.elements<float>(), sums = d_table.elements<float>();
  const auto place_sums = d_positions.elements<float>();
  if (accumulate == Accumulate::no) {
    std::ranges::fill(place_sums, 0.0f);
    threads_.split(sums.size(), kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
      std::ranges::fill(sums.subspan(begin, end - begin), 0.0f);
    });
  }
  // Threads split the columns, so that the rows of a token are added in the same order for any number of threads.
  threads_.split(width, kLine, threshold(token.size()), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = 0; r < token.size(); ++r) {
      assert(!d_table.present() || (token[r] >= 0 && token[r] < d_table.rows));
      const auto from = gradient.subspan(r * width + begin, end - begin);
      if (!sums.empty()) add_scaled(from, 1, sums.subspan(size(token[r]) * width + begin, end - begin));
      if (place_sums.empty()) continue;
      add_scaled(from, 1, place_sums.subspan(r % size(d_positions.rows) * width + begin, end - begin));
    }
  });
}

void CpuSequences::do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) {
  gemm({x}, {table, true}, Accumulate::no, y, threads_, unit_);
}

void CpuSequences::do_project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                                       const Tensor& d_table, const Tensor& d_x) {
  if (d_table.present()) gemm({d_y, true}, {x}, accumulate, d_table, threads_, unit_);
  gemm({d_y}, {table}, Accumulate::no, d_x, threads_, unit_);
}

void CpuSequences::do_layer_norm_forward(const LayerNormForwardOperands& operands) {
  const auto& [x, residual, scale, shift, sum, mean, inverse, y] = operands;
  const std::size_t width = size(x.columns);
  const float* const other = residual.elements<float>().data();
  float* const total = sum.elements<float>().data();
  const auto of_rows = [&](std::size_t begin, std::size_t count, float* to) {
    const std::size_t first = begin * width;
    layer_norm({.rows = count,
                .width = width,
                .x = x.elements<float>().data() + first,
                .scale = scale.elements<float>().data(),
                .mean = mean.elements<float>().data() + begin,
                .inverse = inverse.elements<float>().data() + begin},
               row_or_null(other, first), total == nullptr ? nullptr : total + first, shift.elements<float>().data(),
               to);
  };
  threads_.split(size(x.rows), 1, threshold(width), [&](std::size_t begin, std::size_t end) {
    if (y.type != ElementType::bfloat16) return of_rows(begin, end - begin, y.elements<float>().data() + begin * width);
    const auto own = floats_of_thread(width);
    for (std::size_t row = begin; row < end; ++row) {
      of_rows(row, 1, own.data());
      round_to_bf16(own, {static_cast<Bf16*>(y.data) + row * width, width});
    }
  });
}

void CpuSequences::do_layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate) {
  const auto& [x, scale, mean, inverse, d_y, d_residual, d_scale, d_shift, d_x] = operands;
  const std::size_t width = size(x.columns), rows = size(x.rows);
  // The number of blocks depends on the rows alone, and their sums are added in order.
  const std::size_t blocks = std::clamp<std::size_t>(rows / kBlockRows, 1, kMaxBlocks);
  const auto sums = workspace(blocks * 2 * width);
  const float* const past = d_residual.elements<float>().data();
  threads_.split(blocks, 1, 2, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Slice range = part_of(rows, 1, i, blocks);
      float* const own = sums.data() + i * 2 * width;
      std::fill_n(own, 2 * width, 0.0f);
      const auto of_rows = [&](std::size_t row, std::size_t count, const float* gradient) {
        layer_norm_gradient({.rows = count,
                             .width = width,
                             .x = x.elements<float>().data() + row * width,
                             .scale = scale.elements<float>().data(),
                             .mean = mean.elements<float>().data() + row,
                             .inverse = inverse.elements<float>().data() + row},
                            gradient, row_or_null(past, row * width), own, own + width,
                            d_x.elements<float>().data() + row * width);
      };
      if (d_y.type != ElementType::bfloat16) {
        of_rows(range.offset, range.count, d_y.elements<float>().data() + range.offset * width);
        continue;
      }
      const auto gradient = floats_of_thread(width);
      for (std::size_t row = range.offset; row < range.end(); ++row) {
        widen({static_cast<const Bf16*>(d_y.data) + row * width, width}, gradient);
        of_rows(row, 1, gradient.data());
      }
    }
  });
  const auto scale_sums = d_scale.elements<float>(), shift_sums = d_shift.elements<float>();
  if (accumulate == Accumulate::no) {
    std::ranges::fill(scale_sums, 0.0f);
    std::ranges::fill(shift_sums, 0.0f);
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!scale_sums.empty()) add_scaled(sums.subspan(i * 2 * width, width), 1, scale_sums);
    if (!shift_sums.empty()) add_scaled(sums.subspan((2 * i + 1) * width, width), 1, shift_sums);
  }
}

void CpuSequences::do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
  const std::size_t width = size(x.columns);
  const auto value = x.elements<float>(), out = y.elements<float>();
  threads_.split(size(x.rows), 1, threshold(width), [&](std::size_t begin, std::size_t end) {
    const std::size_t count = (end - begin) * width;
    gelu(value.subspan(begin * width, count), width, bias.elements<float>(), out.subspan(begin * width, count));
  });
}

void CpuSequences::do_gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias) {
  const std::size_t width = size(x.columns);
  const auto sums = d_bias.elements<float>();
  if (accumulate == Accumulate::no) std::ranges::fill(sums, 0.0f);
  // Threads split the columns, so that each sum over the rows has a fixed order.
  threads_.split(width, kLine, threshold(size(x.rows)), [&](std::size_t begin, std::size_t end) {
    gelu_gradient(x.elements<float>(), d_y.elements<float>(), width, begin, end, sums);
  });
}

void CpuSequences::do_batched_product(const BatchedProduct& shape, const Tensor& a, const Tensor& b, const Tensor& c) {
  const std::size_t rows = size(shape.rows), inner = size(shape.inner), columns = size(shape.columns);
  const Factor left{a.elements<float>().data(), size(a.columns), shape.a_transposed};
  const Factor right{b.elements<float>().data(), size(b.columns), shape.b_transposed};
  float* const out = c.elements<float>().data();
  threads_.split(size(shape.count), 1, threshold(rows * columns), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      multiply({.rows = rows, .columns = columns, .inner = inner},
               {left.data + i * rows * inner, left.stride, left.transposed},
               {right.data + i * inner * columns, right.stride, right.transposed}, Accumulate::no,
               out + i * rows * columns, columns, unit_);
    }
  });
}

void CpuSequences::do_dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) {
  if (rule.rate == 0) {
    if (x.data != y.data && x.count() > 0) std::memcpy(y.data, x.data, x.bytes());
    return;
  }
  if (x.rows == 0) return;
  const std::size_t width = size(x.columns);
  const auto key = keys.elements<std::uint64_t>();
  const std::int64_t samples = keys.rows, positions = x.rows / samples;
  const auto numbers = formulas::dropout_numbers(rule);
  threads_.split(size(x.rows), 1, threshold(width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const auto indices = formulas::indices_of(rule.order, samples, positions, static_cast<std::int64_t>(row));
      const std::uint64_t own = key[size(indices.sample)],
                          first = static_cast<std::uint64_t>(rule.first_position + indices.position) * width;
      if (x.type != ElementType::bfloat16) {
        drop(numbers, own, first, x.elements<float>().subspan(row * width, width),
             y.elements<float>().subspan(row * width, width));
        continue;
      }
      const auto floats = floats_of_thread(width);
      widen({static_cast<const Bf16*>(x.data) + row * width, width}, floats);
      drop(numbers, own, first, floats, floats);
      round_to_bf16(floats, {static_cast<Bf16*>(y.data) + row * width, width});
    }
  });
}

void CpuSequences::do_attention_forward(const Attention& shape, const AttentionForwardOperands& operands) {
  cpu::attention_forward(shape, operands, workspace(attention_workspace(shape, threads_.size(), unit_)), threads_,
                         unit_);
}

void CpuSequences::do_attention_backward(const Attention& shape, const AttentionBackwardOperands& operands) {
  cpu::attention_backward(shape, operands, workspace(attention_workspace(shape, threads_.size(), unit_)), threads_,
                          unit_);
}

void CpuSequences::do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
  cpu::lstm_forward(shape, operands, workspace(lstm_workspace(shape, unit_)), threads_, unit_);
}

void CpuSequences::do_lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) {
  cpu::lstm_backward(shape, operands, workspace(lstm_workspace(shape, unit_)), threads_, unit_);
}

void CpuSequences::do_gru_forward(const Gru& shape, const GruForwardOperands& operands) {
  cpu::gru_forward(shape, operands, workspace(gru_workspace(shape, unit_)), threads_, unit_);
}

void CpuSequences::do_gru_backward(const Gru& shape, const GruBackwardOperands& operands) {
  cpu::gru_backward(shape, operands, workspace(gru_workspace(shape, unit_)), threads_, unit_);
}

}  // namespace lockstep::model::cpu
