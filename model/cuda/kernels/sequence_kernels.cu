// Passes that compute elements independently, and their column sums: gelu, dropout, the gates of an LSTM and of a GRU.
#include <algorithm>

#include "model/cuda/kernels/column_sums.cuh"
#include "model/cuda/kernels/element_kernels.cuh"
#include "model/cuda/kernels/sequence_kernels.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

template <int kWidth, class T>
void biased_gelu(cudaStream_t stream, const Tensor& x, const Tensor& bias, const Tensor& y) {
  const Tiling tiling = tiling_of(x.rows, x.columns, kWidth, kBlock);
  const bool wide =
      takes_packs<kWidth>(data_of<T>(x)) && takes_packs<kWidth>(data_of<T>(bias)) && takes_packs<kWidth>(data_of<T>(y));
  launch("gelu_forward", gelu_rows<kWidth, T>, {.blocks = tiling.tiles, .parts = tiling.parts, .threads = kBlock},
         stream, data_of<T>(x), data_of<T>(bias), data_of<T>(y), x.rows, x.columns, tiling.column_bits, wide);
}

/// Units per thread of a step. It is small, because a step has few units: 64 sequences of 1,024 units give 128 blocks,
/// about as many as a GPU has multiprocessors.
constexpr int kUnits = 2;

template <class T, class Body>
void run_units(const char* name, cudaStream_t stream, const Body& body, std::int64_t sequences, bool aligned) {
  run_each<kUnits>(name, stream, body, sequences * body.units, aligned && body.units % kUnits == 0);
}

}  // namespace

void to_time_major(cudaStream_t stream, const Tensor& tokens, const Tensor& out) {
  run_each<1>("to_time_major", stream,
              TimeMajor{data_of<std::int32_t>(tokens), data_of<std::int32_t>(out), static_cast<unsigned>(tokens.rows),
                        static_cast<unsigned>(tokens.columns)},
              tokens.count(), false);
}

void to_tokens(cudaStream_t stream, const Tensor& samples, const TokenRange& range, const Tensor& tokens) {
  const auto take = [&]<class T>() {
    run_each<1>("to_tokens", stream,
                ToTokens<T>{data_of<const T>(samples) + range.first, data_of<std::int32_t>(tokens), samples.columns,
                            range.vocabulary, static_cast<unsigned>(range.count)},
                tokens.count(), false);
  };
  if (samples.type == ElementType::uint8) {
    take.template operator()<std::uint8_t>();
  } else if (samples.type == ElementType::float32) {
    take.template operator()<float>();
  } else {
    take.template operator()<double>();
  }
}

void places_in_documents(cudaStream_t stream, const Tensor& tokens, const Documents& documents, const Tensor& places) {
  run_each<1>("places_in_documents", stream,
              PlacesInDocuments{data_of<const std::int32_t>(tokens), data_of<std::int32_t>(places),
                                static_cast<std::int32_t>(documents.separator), static_cast<unsigned>(tokens.columns),
                                documents.order == RowOrder::time_major},
              tokens.count(), false);
}

void padded_rows(cudaStream_t stream, const Tensor& lengths, PaddedRows rows, const Tensor& marks) {
  run_each<1>("padded_rows", stream,
              MarkPaddedRows{data_of<const std::int32_t>(lengths), data_of<std::int32_t>(marks),
                             static_cast<std::size_t>(lengths.rows), static_cast<std::size_t>(marks.rows), rows},
              marks.count(), false);
}

void carry_rows(cudaStream_t stream, const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y) {
  with_compute_type("carry_rows", x, [&]<class T>() {
    run_each<1>("carry_rows", stream,
                CarryRows<T>{data_of<const T>(x), data_of<const std::int32_t>(places), data_of<T>(y), x.columns,
                             accumulate == Accumulate::yes},
                x.count(), false);
  });
}

void pool_series_forward(cudaStream_t stream, const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                         const Tensor& y) {
  with_compute_type("pool_series_forward", y, [&]<class T>() {
    run_each<1>("pool_series_forward", stream,
                PoolSeries<T>{data_of<const T>(x), data_of<const std::int32_t>(lengths), data_of<T>(y), nullptr,
                              nullptr, y.columns, series.steps, series.pool},
                y.count(), false);
  });
}

void pool_series_backward(cudaStream_t stream, const PaddedSeries& series, const Tensor& x, const Tensor& lengths,
                          const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("pool_series_backward", d_y, [&]<class T>() {
    run_each<1>("pool_series_backward", stream,
                PoolSeries<T>{data_of<const T>(x), data_of<const std::int32_t>(lengths), nullptr, data_of<T>(d_x),
                              data_of<const T>(d_y), d_y.columns, series.steps, series.pool},
                d_y.count(), false);
  });
}

void gelu_forward(cudaStream_t stream, const Tensor& x, const Tensor& bias, const Tensor& y) {
  if (x.count() == 0) return;
  with_compute_type("gelu_forward", x, [&]<class T>() {
    constexpr int kWidth = kWideWidth<T>;
    if (!bias.present()) {
      const Gelu<T> body{data_of<T>(x), data_of<T>(y)};
      run_each<kWidth>("gelu_forward", stream, body, x.count(),
                       takes_packs<kWidth>(body.x) && takes_packs<kWidth>(body.y));
    } else if (x.columns % kWidth == 0) {
      biased_gelu<kWidth, T>(stream, x, bias, y);
    } else {
      biased_gelu<1, T>(stream, x, bias, y);
    }
  });
}

void gelu_backward(cudaStream_t stream, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias,
                   const Scratch& scratch) {
  with_compute_type("gelu_backward", x, [&]<class T>() {
    constexpr int kWidth = kWideWidth<T>;
    const bool wide = takes_packs<kWidth>(data_of<T>(x)) && takes_packs<kWidth>(data_of<T>(d_y));
    const GeluBack<T> body{data_of<T>(x), data_of<T>(d_y), x.columns, wide};
    if (!d_bias.present()) return run_each<kWidth>("gelu_backward", stream, body, x.count(), wide);
    const SumTargets<1> sums{{data_of<float>(d_bias)}};
    const bool add = accumulate == Accumulate::yes;
    if (x.columns % kWidth == 0) {
      run_sum_columns<kWidth>("gelu_backward", stream, body, x.rows, x.columns, add, sums, scratch);
    } else {
      run_sum_columns<1>("gelu_backward", stream, body, x.rows, x.columns, add, sums, scratch);
    }
  });
}

void dropout(cudaStream_t stream, const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y) {
  if (x.count() == 0) return;
  const DropoutRows rows{keys.rows, x.rows / keys.rows, x.columns, rule.order, rule.first_position * x.columns};
  const std::int64_t groups = (rows.first + rows.positions * rows.columns + 3) / 4 - rows.first / 4;
  const Grid grid{.blocks = static_cast<unsigned>(std::min<std::int64_t>((groups + kBlock - 1) / kBlock, kMaxBlocks)),
                  .parts = static_cast<unsigned>(std::min<std::int64_t>(keys.rows, 65535)),
                  .threads = kBlock};
  with_compute_type("dropout", x, [&]<class T>() {
    const bool wide = x.columns % 4 == 0 && takes_packs<4>(data_of<T>(x)) && takes_packs<4>(data_of<T>(y));
    launch("dropout", drop_groups<T>, grid, stream, data_of<T>(x), data_of<std::uint64_t>(keys),
           formulas::dropout_numbers(rule), rows, wide, data_of<T>(y));
  });
}

void lstm_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                       const Tensor& hidden) {
  with_compute_type("lstm_forward", gates, [&]<class T>() {
    const LstmUnits<T> body{data_of<T>(gates), data_of<T>(cells_before), data_of<T>(cells), data_of<T>(hidden),
                            hidden.columns};
    run_units<T>("lstm_forward", stream, body, hidden.rows,
                 takes_packs<kUnits>(body.gates) && takes_packs<kUnits>(body.cells_before) &&
                     takes_packs<kUnits>(body.cells) && takes_packs<kUnits>(body.hidden));
  });
}

void lstm_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& cells_before, const Tensor& cells,
                        const Tensor& d_hidden, const Tensor& parts, LastStep last, const Tensor& d_cell) {
  with_compute_type("lstm_backward", gates, [&]<class T>() {
    const LstmUnitsBack<T> body{data_of<T>(gates),    data_of<T>(cells_before), data_of<T>(cells),
                                data_of<T>(d_hidden), data_of<float>(parts),    data_of<T>(d_cell),
                                d_hidden.columns,     d_hidden.count(),         last == LastStep::yes};
    run_units<T>("lstm_backward", stream, body, d_hidden.rows,
                 takes_packs<kUnits>(body.gates) && takes_packs<kUnits>(body.cells_before) &&
                     takes_packs<kUnits>(body.cells) && takes_packs<kUnits>(body.d_hidden) &&
                     takes_packs<kUnits>(body.parts) && takes_packs<kUnits>(body.d_cell));
  });
}

void gru_step_forward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& bias,
                      const Tensor& hidden_before, const Tensor& hidden) {
  with_compute_type("gru_forward", gates, [&]<class T>() {
    const GruUnits<T> body{data_of<T>(gates),         data_of<T>(products), data_of<T>(bias),
                           data_of<T>(hidden_before), data_of<T>(hidden),   hidden.columns};
    run_units<T>("gru_forward", stream, body, hidden.rows,
                 takes_packs<kUnits>(body.gates) && takes_packs<kUnits>(body.products) &&
                     takes_packs<kUnits>(body.bias) && takes_packs<kUnits>(body.hidden_before) &&
                     takes_packs<kUnits>(body.hidden));
  });
}

void gru_step_backward(cudaStream_t stream, const Tensor& gates, const Tensor& products, const Tensor& hidden_before,
                       const Tensor& d_hidden, const Tensor& d_before) {
  with_compute_type("gru_backward", gates, [&]<class T>() {
    const GruUnitsBack<T> body{data_of<T>(gates),    data_of<T>(products), data_of<T>(hidden_before),
                               data_of<T>(d_hidden), data_of<T>(d_before), d_hidden.columns};
    run_units<T>("gru_backward", stream, body, d_hidden.rows,
                 takes_packs<kUnits>(body.gates) && takes_packs<kUnits>(body.products) &&
                     takes_packs<kUnits>(body.hidden_before) && takes_packs<kUnits>(body.d_hidden) &&
                     takes_packs<kUnits>(body.d_before));
  });
}

}  // namespace lockstep::model::cuda
